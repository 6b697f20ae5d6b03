//! A conversation that several callers drive, through the facade alone.

#[path = "../../examples/support/mod.rs"]
mod support;

use outlast::{Accepted, Body, Delivery, Message, Model, Session};

#[tokio::test]
async fn conversation_answers_two_callers_in_order() {
    let url = support::provider("ok").await.unwrap();
    let session = Session::builder(Model::anthropic("no key", "scripted").base_url(url))
        .open_or_create("talk")
        .await
        .unwrap();
    let conversation = session.into_conversation();
    let (first, second) = (conversation.clone(), conversation.clone());
    let mut events = conversation.events(None);

    let (first, second) = tokio::join!(
        first.prompt(Message::user("one"), Delivery::IfIdle),
        second.prompt(Message::user("two"), Delivery::FollowUp),
    );
    assert!(matches!(first, Ok(Accepted::Started(_))), "{first:?}");
    assert_eq!(second.unwrap(), Accepted::Queued);
    assert!(conversation.settled().await.error.is_none());
    conversation.close().await.unwrap();

    let mut inputs = Vec::new();
    while let Some(event) = events.next().await {
        if let Body::Input { text } = event.unwrap().body {
            inputs.push(text);
        }
    }
    assert_eq!(inputs, ["one", "two"]);
}
