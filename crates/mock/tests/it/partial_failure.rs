//! Partial failure over real sockets: the faults that `outlast simulate` plays in virtual time.

use crate::client::{Received, TestServer, completion_request};
use outlast_dialect::{Delivery, Dialect};
use outlast_mock::Options;
use std::time::Duration;

async fn server(script: &str) -> TestServer {
    TestServer::start_with(Options::new(script.parse().unwrap())).await
}

/// Sends a request that no other request equals.
async fn send(server: &TestServer, label: usize) -> Received {
    let (dialect, model) = (Dialect::OpenaiChat, format!("m{label}"));
    let request = completion_request(dialect, &model, Delivery::Whole, &[]);
    server.send(&request).await
}

async fn status(server: &TestServer, label: usize) -> u16 {
    send(server, label).await.status()
}

async fn statuses(server: &TestServer, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for label in 0..count {
        statuses.push(status(server, label).await);
    }
    statuses
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn flaky_provider_refuses_a_share_with_a_wait() {
    let server = server("flaky:20%,retry-after=5,seed=3").await;
    let mut refused = 0;
    for label in 0..200 {
        let received = send(&server, label).await;
        if received.status() == 429 {
            assert_eq!(received.header("retry-after"), Some("5"));
            refused += 1;
        } else {
            assert_eq!(received.status(), 200);
        }
    }
    assert!((25..55).contains(&refused), "{refused} of 200");
}

#[tokio::test(start_paused = true)]
async fn flaky_provider_fails_a_share_in_different_ways() {
    let server = server("flaky:30%").await;
    let (mut answered, mut errors, mut lost) = (0, 0, 0);
    for label in 0..100 {
        let received = send(&server, label).await;
        match received.text.is_empty() {
            true => lost += 1,
            false if received.status() == 200 => answered += 1,
            false => errors += 1,
        }
    }
    assert!((55..85).contains(&answered), "{answered} of 100");
    assert!(errors > 5 && lost > 2, "{errors} {lost}");
}

#[tokio::test(start_paused = true)]
async fn first_calls_of_each_request_fail() {
    let server = server("fails-each:2").await;
    assert_eq!(statuses(&server, 3).await, [503; 3]);
    assert_eq!(statuses(&server, 3).await, [503; 3]);
    assert_eq!(statuses(&server, 4).await, [200, 200, 200, 503]);
}

#[tokio::test(start_paused = true)]
async fn flapping_provider_answers_and_fails_in_turns() {
    let server = server("flap:20s/10s").await;
    let mut seen = Vec::new();
    for _ in 0..7 {
        seen.push(status(&server, 0).await);
        pause(5).await;
    }
    assert_eq!(seen, [200, 200, 200, 200, 503, 503, 200]);
}

#[tokio::test(start_paused = true)]
async fn bucket_refuses_calls_beyond_its_rate_until_it_is_refilled() {
    for (script, stated) in [("bucket:3/s", None), ("bucket:3/s,as=seconds", Some("1"))] {
        let server = server(script).await;
        assert_eq!(statuses(&server, 4).await, [200, 200, 200, 429]);
        let refused = send(&server, 0).await;
        assert_eq!(refused.header("retry-after"), stated, "{script}");
        pause(1).await;
        assert_eq!(statuses(&server, 4).await, [200, 200, 200, 429]);
    }
}

#[tokio::test(start_paused = true)]
async fn bucket_of_tokens_refuses_large_requests_first() {
    let server = server("capacity:requests=100,tokens=400").await;
    let (dialect, large) = (Dialect::OpenaiChat, "m".repeat(1200));
    let large = completion_request(dialect, &large, Delivery::Whole, &[]);
    assert_eq!(server.send(&large).await.status(), 200);
    assert_eq!(server.send(&large).await.status(), 429);
    assert_eq!(status(&server, 0).await, 200);
}

#[tokio::test(start_paused = true)]
async fn brownout_fails_some_calls_and_delays_the_others() {
    let server = server("brownout:600,hold=3").await;
    let (mut late, mut failed) = (0, 0);
    for label in 0..40 {
        let began = tokio::time::Instant::now();
        match status(&server, label).await {
            200 => {
                assert!(began.elapsed() >= Duration::from_secs(3));
                late += 1;
            }
            503 => failed += 1,
            other => panic!("{other}"),
        }
    }
    assert!(late > 10 && failed > 10, "{late} {failed}");
    pause(600).await;
    assert_eq!(statuses(&server, 3).await, [200; 3]);
}

#[tokio::test(start_paused = true)]
async fn usage_limit_states_its_reset_until_then() {
    let server = server("usage-limit:reset=18000").await;
    let refused = send(&server, 0).await;
    assert_eq!(refused.status(), 429);
    pause(17_990).await;
    assert_eq!(status(&server, 1).await, 429);
    pause(20).await;
    assert_eq!(status(&server, 2).await, 200);
}
