#include "server/base/event_message.h"

#include <string>

namespace detshare {

proto::Event ToMessage(const DaemonEvent& event) {
  proto::Event message;
  message.set_number(event.number);
  message.set_unix_ns(event.unix_ns);
  message.set_kind(std::string(NameOf(event.kind)));
  message.set_session(event.session);
  message.set_tenant(event.tenant);
  message.set_program(event.program);
  message.set_pid(event.pid);
  message.set_uid(event.uid);
  message.set_text(event.text);
  message.set_endpoint(event.endpoint);
  *message.mutable_owner() = event.owner;
  return message;
}

DaemonEvent FromMessage(const proto::Event& message) {
  DaemonEvent event;
  event.kind = KindNamed(message.kind()).value_or(DaemonEvent::Kind::kStarted);
  event.session = message.session();
  event.tenant = message.tenant();
  event.program = message.program();
  event.pid = message.pid();
  event.uid = message.uid();
  event.text = message.text();
  event.endpoint = message.endpoint();
  return event;
}

}  // namespace detshare
