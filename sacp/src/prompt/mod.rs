//! Between messages and models: what is written for a model, and how its answer is read.
//!
//! ```
//! use sacp::prompt::{AgentRole, Bridge, Turn, agent_prompt};
//! use sacp::{Message, Reply};
//!
//! let request = Message::decode(br#"{"msg_id":"m","g":"FORECAST","plan":[["predict","PRC_EST",{}]]}"#)?;
//! let role = AgentRole::new("PRICE_PREDICTOR", ["predict"], ["PRC_EST"]);
//! let mut bridge = Bridge::new(agent_prompt(&role, &request));
//! // The model forgets a part, is told, and mends it.
//! let Turn::Again(prompt) = bridge.answer(r#"{"g":"FORECAST","plan":[["predict","PRC_EST"]]}"#) else { panic!() };
//! assert!(prompt.contains("act 1 has 2 parts where 3 are wanted"));
//! let mended = "Here it is:\n```json\n{\"g\":\"FORECAST\",\"plan\":[],\"ctx\":{\"result\":[9]},\"state\":\"DONE\"}\n```";
//! let Turn::Done(reply) = bridge.answer(mended) else { panic!() };
//! assert!(matches!(*reply, Reply::Message(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Spec: SACP 7, 13

mod bridge;
mod extract;
mod template;

pub use bridge::{Bridge, Turn};
pub(crate) use extract::read_answer;
pub use template::{AgentRole, act_prompt, agent_prompt, interface_prompt, planner_prompt, rules};
