//! How long one poll holds its thread, with the worst messages that are known: `cargo bench -p benches --bench sap_yield`.
//! Each has 1 MiB, which is what the transports take, and goes to a processor and over a bus. At most 10 ms of work.
//!
//! Two figures: the time that the thread worked, as the system counts it (Linux), and the time that went by, in which on a
//! busy machine others worked too.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject fails has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the figures are the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Waking, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use benches::{Bar, report};
use futures::future::BoxFuture;
use sap::alignment::Rules;
use sap::cache::{Caching, WholePayload};
use sap::processor::{AllowAll, Config, Context, Delivery, Outcome, Processor, Schemas};
use sap::store::{MemoryCache, MemoryTranscript};
use sap::transport::bus::{self, Bus};
use sap::transport::{Caller, Message};
use sap::{Producer, ProducerKind};
use ubos_common::driver::Sleep;
use ubos_common::time::{Mono, Now, Timestamp};

/// Bytes of a payload; the rest of a task is small.
const BYTES: usize = (1 << 20) - 8_192;

#[derive(Clone)]
struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }

    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// `piece` again and again between `open` and `close`, without the comma behind the last one.
fn filled(open: &str, piece: &str, close: &str) -> String {
    let many = piece.repeat((BYTES - open.len() - close.len()) / piece.len());
    format!("{open}{}{close}", many.trim_end_matches(','))
}

fn task(payload: &str, more: &str, context: &str) -> String {
    format!(
        r#"{{"protocolVersion":"2.0","taskId":"00000000-0000-0000-0000-000000000001","correlationId":"00000000-0000-0000-0000-000000000002","issuedAt":"2025-09-28T10:15:23Z","issuer":{{"agentId":"A-prime","agentKind":"agent"}},"target":{{"capability":"text.echo"}},"constitutionalContext":{{"pressureLevel":"deliberated","cachePolicy":{{"mode":"prefer"}}{context}}},"payload":{payload}{more}}}"#
    )
}

fn processor(rules: usize) -> Processor {
    let rules = (0..rules).fold(Rules::default(), |rules, number| {
        rules.forbid("care", &format!("forbidden word {number}"))
    });
    Processor::new(
        Producer::new("A-1".parse().expect("an id"), ProducerKind::Agent),
        Arc::new(AllowAll),
        Arc::new(MemoryTranscript::default()),
        Config::default(),
    )
    .expect("settings in range")
    .policy(Arc::new(rules))
    .contract(Arc::new(Schemas::default()))
    .cache(Arc::new(MemoryCache::default()))
    .cached(
        "text.echo".parse().expect("a name"),
        Caching::shared(WholePayload),
    )
    .handle(
        "text.echo".parse().expect("a name"),
        |cx: Context| async move {
            // What a handler does itself is its own.
            let output = cx.task.payload.clone().into();
            Ok(Outcome::new(output).citing(vec!["ubos://a".into()]))
        },
    )
}

/// How long polls held their thread.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    working: Duration,
    waiting: Duration,
}

/// For how long this thread has worked; nothing where the system does not say.
fn worked() -> Duration {
    // The system counts when a thread gives way.
    thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How the task ended, in a word.
fn end(answer: &str) -> &'static str {
    let mut ends = ["Succeeded", "Failed", "Nack", "NonConstitutional", "Err"].into_iter();
    ends.find(|end| answer.contains(end)).unwrap_or("?")
}

fn in_processor(text: &str, rules: usize) -> (Held, usize, &'static str) {
    let processor = processor(rules);
    let mut sink = |_: Delivery<'_>| {};
    let (held, polls, answer) = longest(processor.process(&Still, text.as_bytes(), &mut sink));
    (held, polls, end(&format!("{answer:?}")))
}

/// Keeps how the last message says that the task ended.
struct Last(&'static str);

impl Caller for Last {
    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        self.0 = end(&format!("{message:?}"));
        Box::pin(std::future::ready(()))
    }
}

fn over_bus(text: &str, rules: usize) -> (Held, usize, &'static str) {
    let transcript = Arc::new(MemoryTranscript::default());
    let bus = Bus::new(Arc::new(Still), transcript, bus::Config::default()).expect("a bus");
    bus.attach(processor(rules), |_| {});
    let mut last = Last("?");
    let (held, polls, served) = longest(bus.serve(text.as_bytes(), &mut last));
    served.expect("it is written down");
    (held, polls, last.0)
}

/// The longest poll of a task, the number of polls, and what came of it.
fn longest<T>(running: impl Future<Output = T>) -> (Held, usize, T) {
    let mut running = pin!(running);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut waking = Waking::from_waker(&waker);
    let (mut longest, mut polls) = (Held::default(), 0);
    loop {
        let (start, before) = (Instant::now(), worked());
        let polled = running.as_mut().poll(&mut waking);
        let took = Held {
            working: worked().saturating_sub(before),
            waiting: start.elapsed(),
        };
        longest.working = longest.working.max(took.working);
        longest.waiting = longest.waiting.max(took.waiting);
        polls += 1;
        if std::env::var_os("POLLS").is_some() && took.working > Duration::from_millis(3) {
            println!("  {polls}: {took:?}");
        }
        if polled.is_pending() {
            thread::park();
        }
        if let Poll::Ready(answer) = polled {
            return (longest, polls, answer);
        }
    }
}

fn main() {
    let constraint = |term: &str, times: usize| {
        let text = vec![term; times].join(" and ");
        let all = vec![format!("{:?}", format!("output {text}")); 64].join(",");
        format!(r#","constraints":[{all}]"#)
    };
    let schema = r#","outputContract":{"schema":{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"number","minimum":3},{"type":"object"}]},"uniqueItems":true}}}}"#;
    // No array may have more than 100,000 elements.
    let lists = |piece: &str| {
        let list = piece.repeat(BYTES / 8 / piece.len());
        let list = format!("[{}]", list.trim_end_matches(','));
        format!(r#"{{"a":[{}]}}"#, vec![list; 8].join(","))
    };
    let (numbers, objects) = (lists("1.5e300,"), lists("{},"));
    let nested = format!(
        r#"{{"a":[{}]}}"#,
        vec![format!("{}{}", "[".repeat(50), "]".repeat(50)); BYTES / 101].join(",")
    );
    let names = {
        let lists = 200;
        let each = (0..BYTES / lists / 12)
            .map(|number| format!(r#""k{number:06}":1"#))
            .collect::<Vec<_>>()
            .join(",");
        format!(
            r#"{{"a":[{}]}}"#,
            vec![format!("{{{each}}}"); lists].join(",")
        )
    };
    let many = |member: &str| {
        let names = (0..99_000).map(|name| format!("\"p{name:06}\""));
        format!(r#","{member}":[{}]"#, names.collect::<Vec<_>>().join(","))
    };
    let pressed = {
        let readings = (0..9_900).map(|name| format!("\"p{name:06}\":1"));
        format!(
            r#","pressure":{{{}}}"#,
            readings.collect::<Vec<_>>().join(",")
        )
    };
    let text = |piece: &str| filled(r#"{"t":""#, piece, r#""}"#);
    let cases = [
        ("plain text", task(&text("lorem ipsum "), "", "")),
        ("escapes", task(&text(r"\u00e9"), "", "")),
        ("colons", task(&text("a:b=c:"), "", "")),
        ("names and equals signs", task(&text("key=a "), "", "")),
        (
            "combining characters",
            task(&text("e\u{301}\u{323}"), "", ""),
        ),
        ("marks alone", task(&text("\u{301}\u{323}"), "", "")),
        (
            "letters that become eleven",
            task(&text("\u{fdfa}"), "", ""),
        ),
        ("capitals in a name", task(&text("aB"), "", "")),
        ("numbers", task(&numbers, "", "")),
        ("numbers under a schema", task(&numbers, schema, "")),
        ("objects", task(&objects, "", "")),
        ("nested arrays", task(&nested, "", "")),
        ("names", task(&names, "", "")),
        (
            "64 constraints over text",
            task(&text("lorem "), "", &constraint("/t contains \"x\"", 8)),
        ),
        (
            "64 constraints over numbers",
            task(&numbers, "", &constraint("/a/*/* > 7", 8)),
        ),
        (
            "64 constraints over a number",
            task(
                &filled(r#"{"n":0."#, "7", "}"),
                "",
                &constraint("/n > 0.5", 16),
            ),
        ),
        (
            "a constraint over other letters",
            task(&text("é"), "", &constraint("/t contains \"x\"", 1)),
        ),
        (
            "a constraint over a whole value",
            task(&numbers, "", &constraint(". != {}", 1)),
        ),
        ("principles", task("{}", "", &many("principles"))),
        ("pressure", task("{}", "", &pressed)),
        ("no task", filled("[", "1,", "]")),
        ("no task, of numbers", numbers.clone()),
        ("findings", filled(r#"{"taskId":["#, "{},", "]}")),
    ];
    // As long as an output may be that is judged where the task is, under few rules.
    let short = |piece: &str, bytes: usize| {
        let text = piece.repeat(bytes / piece.len());
        task(&format!(r#"{{"t":"{text}"}}"#), "", "")
    };
    let few = [
        ("a short text of such letters", short("\u{fdfa}", 8_000)),
        ("the same, four times as long", short("\u{fdfa}", 32_000)),
    ];
    let cases = cases.into_iter().map(|case| (case, 16));
    let cases = cases.chain(few.map(|case| (case, 1)));
    let cases: Vec<_> = cases.collect();
    // `cargo test` runs benches once, to see that they run.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let count = if is_bench { cases.len() } else { 1 };
    type Way = fn(&str, usize) -> (Held, usize, &'static str);
    for (way, run) in [("a processor", in_processor as Way), ("a bus", over_bus)] {
        let mut worst = Duration::ZERO;
        println!("{way}:");
        for ((name, text), rules) in cases.iter().take(count) {
            let (longest, polls, end) = run(text, *rules);
            println!(
                "{name:<32} {:>10.1?} of work, {:>10.1?} in all, longest of {polls} polls, {} bytes, {end}",
                longest.working,
                longest.waiting,
                text.len()
            );
            // Where the system does not say how long a thread has worked, what went by is the bound.
            worst = worst.max(match longest.working {
                Duration::ZERO => longest.waiting,
                working => working,
            });
        }
        if is_bench {
            let what =
                format!("SAP: ms of work of the longest poll of {way}, worst messages of 1 MiB");
            report(&what, worst.as_secs_f64() * 1e3, Bar::AtMost(10.0));
        }
    }
}
