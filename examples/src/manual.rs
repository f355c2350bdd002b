//! The manual of the project, with examples that run: the pages of the folder `manual`.

#![expect(
    clippy::doc_markdown,
    reason = "pages are written for people who read them as Markdown"
)]

macro_rules! pages {
    ($($(#[$attr:meta])* $name:ident = $page:literal;)*) => {
        $(
            $(#[$attr])*
            #[doc = include_str!(concat!("../../manual/", $page))]
            pub mod $name {}
        )*
    };
}

pages! {
    the_loop = "README.md";
    agent_application = "agent-application.md";
    orchestrator = "orchestrator.md";
    conformance_test = "conformance-test.md";
    fuzz_target = "fuzz-target.md";
}

/// A page for each machine.
pub mod machines {
    pages! {
        index = "machines/README.md";
        producer = "machines/producer.md";
        consumer = "machines/consumer.md";
        runner = "machines/runner.md";
        orchestrator = "machines/orchestrator.md";
        tool_loop = "machines/tool-loop.md";
        engine = "machines/engine.md";
        recorder = "machines/recorder.md";
        connection = "machines/connection.md";
        router = "machines/router.md";
        hub = "machines/hub.md";
        fleet_agent = "machines/fleet-agent.md";
    }
}
