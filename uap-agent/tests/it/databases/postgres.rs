//! PostgreSQL, on servers that the tests start for themselves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::agent;
use uap_agent::journal::{Journal as _, JournalError, Recording};
use uap_agent::sql::{Database, OpenError, PostgresConfig};
use uap_agent::{CheckpointHistory as _, CheckpointStore as _};
use ubos_common::id::IdSource;
use upp::{FnTool, Tool, object};

use super::race::two_processes_race;
use super::server::Server;
use crate::journal::{asking, strategies};
use crate::log_store::Steps;
use crate::support::wait_until;

fn open(server: &Server) -> Database {
    Database::postgres(&PostgresConfig::new(server.address())).unwrap()
}

fn with(test: impl FnOnce(super::Open<'_>)) {
    let server = Server::start();
    test(&|| open(&server));
}

// spec: UAP-12-5
#[test]
fn postgres_keeps_what_journals_must() {
    with(super::it_keeps_what_journals_must);
}

// spec: UAP-12-5
#[test]
fn runs_whose_owner_is_gone_are_found_in_postgres() {
    with(super::runs_whose_owner_is_gone_are_found);
}

// spec: UAP-12-7, UAP-12-4
#[test]
fn checkpoints_in_postgres_do_what_stores_do() {
    with(super::checkpoints_do_what_stores_do);
}

// spec: UAP-12-4
#[test]
fn checkpoints_in_postgres_are_those_of_memory() {
    with(super::checkpoints_are_those_of_memory);
}

#[test]
fn bounds_hold_in_postgres() {
    with(super::bounds_hold);
}

#[test]
fn a_thousand_sessions_go_side_by_side_in_postgres() {
    with(super::a_thousand_sessions_go_side_by_side);
}

// spec: UAP-12-5
#[test]
fn two_processes_race_in_postgres() {
    let server = Server::start();
    two_processes_race(&format!("postgres {}", server.address()), 200);
}

/// Says that a thread has ended, also where it panicked.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A server that is killed and started again while others work with it.
struct Outages {
    kills: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Outages {
    /// Kills the server as soon as it is told to, and starts it again a moment later; `wanted` counts.
    fn of(server: &Arc<Mutex<Server>>, wanted: Arc<AtomicUsize>) -> Self {
        let (kills, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (server, killed, ended) = (Arc::clone(server), kills.clone(), is_over.clone());
        let work = move || {
            let _ending = Ending(Arc::clone(&ended));
            while !ended.load(Ordering::SeqCst) {
                if killed.load(Ordering::SeqCst) < wanted.load(Ordering::SeqCst) {
                    let mut server = server.lock().unwrap();
                    server.kill();
                    std::thread::sleep(Duration::from_millis(100));
                    server.run();
                    killed.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let named = std::thread::Builder::new().name("outages".into());
        let thread = Some(named.spawn(work).unwrap());
        Self {
            kills,
            is_over,
            thread,
        }
    }

    fn end(mut self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        self.kills.load(Ordering::SeqCst)
    }
}

// spec: UAP-12-5
#[test]
fn a_run_goes_on_when_the_server_was_killed_in_its_middle() {
    let server = Arc::new(Mutex::new(Server::start()));
    let database = open(&server.lock().unwrap());
    let [looped, ..] = strategies();
    let uncut = agent(asking(&looped)).unwrap();
    let wanted = block_on(uncut.generate("go", &uncut.initial_state())).unwrap();

    let (wish, ran) = (
        Arc::<AtomicUsize>::default(),
        Arc::<Mutex<Vec<String>>>::default(),
    );
    let outages = Outages::of(&server, wish.clone());
    let tool = |name: &str| {
        let (wish, ran, kills) = (wish.clone(), ran.clone(), outages.kills.clone());
        let is_over = outages.is_over.clone();
        let run = move |arguments: ubos_common::json::RawObject, context: upp::ToolContext| {
            ran.lock().unwrap().push(context.tool_call_id.to_string());
            // The server is gone, or has just come back, when the result is written.
            let next = wish.fetch_add(1, Ordering::SeqCst) + 1;
            wait_until("the server is killed and started", || {
                // Whoever kills it may have panicked: the test is told when it ends the outages.
                let is_over = is_over.load(Ordering::SeqCst);
                is_over || next % 2 == 1 || kills.load(Ordering::SeqCst) >= next
            });
            let fails = arguments.as_str() == r#"{"fail":1}"#;
            let answer = if fails {
                Err("it failed".into())
            } else {
                Ok(arguments.into())
            };
            std::future::ready(answer)
        };
        let schema = object(r#"{"type":"object"}"#).unwrap();
        Arc::new(FnTool::new(name, "Echoes", schema, run)) as Arc<dyn Tool>
    };
    let checkpoints = Arc::new(database.checkpoints());
    let options = asking(&looped).with_tools([tool("echo"), tool("other")]);
    let options = options
        .with_checkpoints(checkpoints.clone())
        .with_session_id("s");
    let lost = Arc::new(Mutex::new(Vec::new()));
    let told = lost.clone();
    let options =
        options.with_on_save_failed(move |error| told.lock().unwrap().push(error.clone()));
    let recorded = agent(options).unwrap();
    let run = Arc::new(database.journal("run"));
    let state = recorded.initial_state();
    let result = block_on(recorded.record(run.clone(), "go", &state).result()).unwrap();
    assert!(outages.end() >= 2);
    assert_eq!(result.turn.response.text(), wanted.turn.response.text());
    let mut calls = ran.lock().unwrap().clone();
    let number = calls.len();
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), number, "a tool ran twice: {calls:?}");
    assert!(lost.lock().unwrap().is_empty(), "{lost:?}");
    assert!(block_on(Recording::load(run.as_ref())).unwrap().has_ended());
    assert_eq!(
        block_on(checkpoints.load("s")).unwrap(),
        Some(result.state.clone())
    );
    // What stands there is what was recorded: it replays.
    let again = block_on(async { recorded.resume(run).await.unwrap().result().await });
    assert_eq!(again.unwrap(), result);
}

// spec: UAP-12-5
#[test]
fn a_server_that_has_stopped_is_not_waited_for_without_end() {
    let server = Server::start();
    let config = PostgresConfig::new(server.address()).with_connections(1);
    let database = Database::postgres(&config).unwrap();
    let run = database.journal("run");
    let mut entries = super::entries().into_iter();
    let mut next = || vec![entries.next().unwrap()];
    block_on(run.append(0, next())).unwrap();
    let written = next();
    // It holds its connections, and answers nothing.
    server.signal("-STOP");
    let refused = block_on(run.append(1, written.clone())).unwrap_err();
    assert!(matches!(refused, JournalError::Failed(_)), "{refused}");
    // A connection that has said nothing is given up, even where it stays silent.
    server.signal_alone("-CONT");
    let done = block_on(run.append(1, written));
    server.signal("-CONT");
    done.unwrap();
    assert_eq!(block_on(run.read()).unwrap().len(), 2);
}

// spec: UAP-12-4, UAP-12-5
#[test]
fn nothing_is_written_twice_or_lost_however_often_the_server_is_killed() {
    let server = Arc::new(Mutex::new(Server::start()));
    let database = open(&server.lock().unwrap());
    let wish = Arc::<AtomicUsize>::default();
    let outages = Outages::of(&server, wish.clone());
    let (mut dice, entries) = (IdSource::seeded(5), super::entries());
    let (run, store) = (database.journal("run"), database.checkpoints());
    let (mut steps, mut saved, mut written) = (Steps::new(6), Vec::new(), Vec::new());
    for n in 0..400_usize {
        if n % 80 == 40 {
            wish.fetch_add(1, Ordering::SeqCst);
        }
        // Somewhere in the middle of what is done next. To yield would take a turn of each busy process of the machine.
        std::thread::sleep(Duration::from_micros(dice.bits() % 500));
        let entry = entries[n % entries.len()].clone();
        block_on(run.append(n as u64, vec![entry.clone()])).unwrap();
        written.push(entry);
        steps.step(10);
        steps.save(&store, "s").unwrap();
        saved.push(steps.state.clone());
    }
    assert!(outages.end() >= 4);
    assert_eq!(block_on(run.read()).unwrap(), written);
    let history = block_on(store.history("s")).unwrap();
    assert_eq!(history.len(), saved.len());
    for (known, state) in history.iter().zip(&saved) {
        let found = block_on(store.load_at("s", known.checkpoint_id)).unwrap();
        assert_eq!(found.as_ref(), Some(state));
    }
}

#[test]
fn all_who_open_a_new_database_at_once_have_it() {
    const CROWD: usize = 8;
    let server = Server::start();
    for round in 0..10 {
        let name = format!("new_{round}");
        server.make_database(&name);
        let address = format!("{} dbname={name}", server.base());
        let config = PostgresConfig::new(address).with_connections(1);
        let together = Barrier::new(CROWD);
        std::thread::scope(|scope| {
            let open = || {
                together.wait();
                Database::postgres(&config).map(drop)
            };
            let opened = [(); CROWD].map(|()| scope.spawn(open));
            for opened in opened {
                opened.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn a_write_is_on_the_disk_and_waits_for_no_lock_without_end_whatever_is_usual_there() {
    let server = Server::start();
    drop(open(&server));
    // An entry that is written tells what holds for the connection.
    let told = "current_setting('synchronous_commit'), current_setting('lock_timeout')";
    server.run_sql("ALTER DATABASE postgres SET synchronous_commit = off");
    server.run_sql(&format!(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION '% %', {told}; END $$;
         CREATE TRIGGER tell BEFORE INSERT ON uap_entry EXECUTE FUNCTION tell()"
    ));
    let run = open(&server).journal("run");
    let entry = super::entries().remove(0);
    let refused = block_on(run.append(0, vec![entry])).unwrap_err();
    assert!(refused.to_string().ends_with("on 10s"), "{refused}");
}

#[test]
fn what_cannot_be_reached_is_refused() {
    let server = Server::start();
    for connections in [0, 65] {
        let config = PostgresConfig::new(server.address()).with_connections(connections);
        let refused = Database::postgres(&config).unwrap_err();
        let wanted = format!("connections is {connections}, but must be from 1 to 64");
        assert_eq!(refused.to_string(), wanted);
    }
    let nobody = server
        .address()
        .replace("user=agents", "user=nobody password=secret");
    for address in [
        "host=/nowhere user=a password=secret",
        "nonsense password=secret",
        &nobody,
    ] {
        let refused = Database::postgres(&PostgresConfig::new(address)).unwrap_err();
        assert!(matches!(refused, OpenError::Failed(_)), "{refused:?}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
}

#[test]
fn postgres_is_reached_with_tls_by_whom_it_shows_the_right_certificate() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let server = Server::start_with_tls(&own.cert.pem(), &own.signing_key.serialize_pem());
    let address = format!("{} sslmode=require", server.address_with_tls());
    let trusting = |known: &[rustls::pki_types::CertificateDer<'static>]| {
        let mut roots = rustls::RootCertStore::empty();
        known.iter().for_each(|one| roots.add(one.clone()).unwrap());
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tokio_postgres_rustls::MakeRustlsConnect::new(tls)
    };
    let known = [own.cert.der().clone()];
    let config = PostgresConfig::new(address.as_str()).with_tls(trusting(&known));
    let database = Database::postgres(&config).unwrap();
    super::it_keeps_what_journals_must(&|| database.clone());

    // Nobody is let in without it, and nobody trusts a server by its word.
    let without = Database::postgres(&PostgresConfig::new(server.address_with_tls()));
    let refused = without.unwrap_err().to_string();
    assert!(refused.contains("no encryption"), "{refused}");
    let demanded = Database::postgres(&PostgresConfig::new(address.as_str()));
    let refused = demanded.unwrap_err().to_string();
    assert!(refused.contains("TLS"), "{refused}");
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = [stranger.cert.der().clone()];
    let config = PostgresConfig::new(address.as_str()).with_tls(trusting(&other));
    let refused = Database::postgres(&config).unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
}
