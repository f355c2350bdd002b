//! Correlation ids: of whose task an answer is.

use sap::LifecycleError;

use super::*;

/// What a client comes to whose server says this, with a correlation id in a header.
async fn answered(task: &Value, header: &Value, body: String) -> Result<(), SendError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let header = header.as_str().unwrap().to_owned();
    let routes = axum::Router::new().fallback(async move || ([("x-correlation-id", header)], body));
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let client = HttpClient::new(&url).unwrap();
    let (task, mut told) = (typed(&task.to_string()), 0);
    let answer = client.send(&task, &mut |_| told += 1).await.map(drop);
    assert_eq!(told, usize::from(answer.is_ok()));
    answer
}

// spec: SAP-4.3-3, SAP-10-2
#[tokio::test]
async fn an_answer_of_another_task_is_refused() {
    let task = ask(1, "test.echo");
    let other = json!("00000000-0000-0000-0000-000000009999");
    let ids = json!({"messageId": task["taskId"], "correlationId": task["correlationId"]});
    let ack = with(ids.clone(), "/status", Some(json!("ACK")));
    let nack = with(ids, "/status", Some(json!("NACK")));
    let nack = with(nack, "/code", Some(json!("FORBIDDEN")));
    let nack = with(nack, "/reason", Some(json!("it may not be")));
    let result = with(
        crate::samples::result(),
        "/taskId",
        Some(task["taskId"].clone()),
    );
    let own = &task["correlationId"];
    for (message, id) in [
        (&ack, "/messageId"),
        (&nack, "/messageId"),
        (&result, "/taskId"),
    ] {
        for (pointer, is_task) in [(id, true), ("/correlationId", false)] {
            let of_other = with(message.clone(), pointer, Some(other.clone()));
            let refused = answered(&task, own, of_other.to_string()).await;
            let is_right = match &refused {
                Err(SendError::Refused(LifecycleError::Task { .. })) => is_task,
                Err(SendError::Refused(LifecycleError::Correlation { .. })) => !is_task,
                _ => false,
            };
            assert!(is_right, "{of_other}: {refused:?}");
        }
    }
    for message in [nack, result] {
        assert!(answered(&task, own, message.to_string()).await.is_ok());
        // The header alone says that it is of another one.
        let refused = answered(&task, &other, message.to_string()).await;
        let is_right = matches!(
            refused,
            Err(SendError::Refused(LifecycleError::Correlation { .. }))
        );
        assert!(is_right, "{refused:?}");
    }
}

// spec: SAP-10-2
#[tokio::test]
async fn a_question_that_is_turned_away_has_its_correlation_id_echoed() {
    let server = OverHttp::start(&Seen::default(), Config::default()).await;
    let id = ask(1, "test.echo")["taskId"].clone();
    let id = id.as_str().unwrap();
    for (below, origin, status) in [
        ("what?issuer=A-prime".to_owned(), None, 400),
        (format!("{id}?issuer=A-prime"), None, 404),
        (format!("{id}/events?issuer=A-prime"), None, 404),
        (
            format!("{id}?issuer=A-prime"),
            Some("https://evil.example"),
            403,
        ),
    ] {
        let asked = server.plain.get(format!("{}/{below}", server.url));
        let asked = asked.header("x-correlation-id", "of-the-question");
        let asked = match origin {
            Some(origin) => asked.header("origin", origin),
            None => asked,
        };
        let answer = asked.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{below}");
        assert_eq!(answer.headers()["x-correlation-id"], "of-the-question");
    }
}
