// Sharing between processes.
#include "proto/wire/ipc.h"

#include <cstring>

#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/shared_event.h"
#include "policy/status_macros.h"
#include "server/session/context_table.h"
#include "server/session/handlers/common.h"
#include "server/session/ipc_memory.h"
#include "server/session/session_memory.h"
#include "server/session/shared_events.h"

namespace detshare::handlers {
namespace {

static_assert(sizeof(wire::IpcToken) == sizeof(SharedEvents::Token) &&
              sizeof(wire::IpcToken) == sizeof(ShareTokenValue));

absl::Status OpenEvent(Session& session, const wire::cuIpcOpenEventHandle& args) {
  DETSHARE_RETURN_IF_ERROR(session.UseContext(args.context));
  SharedEvents::Token token;
  std::memcpy(token.data(), args.token.bytes, token.size());
  absl::StatusOr<std::shared_ptr<SharedEvent>> event =
      session.config().shared_event_tokens->Import(session.config().owner.uid, session.id(), token);
  if (!event.ok()) return event.status();
  DETSHARE_RETURN_IF_ERROR(session.contexts().AddEvent(args.event, args.context));
  session.contexts().ShareEvent(args.event, *std::move(event));
  return absl::OkStatus();
}

Task<void> OpenMemory(Session& session, SessionDevice& device, wire::cuIpcOpenMemHandle_v2 args,
                      Reply reply) {
  ShareTokenValue token;
  std::memcpy(token.data(), args.token.bytes, token.size());
  const absl::StatusOr<IpcMemory::Opened> opened =
      co_await session.memory().ipc().Open(device, args.context, token);
  if (!opened.ok()) {
    reply.Send(opened.status());
    co_return;
  }
  const auto index = static_cast<uint32_t>(opened->device - session.devices().data());
  reply.Send(wire::cuIpcOpenMemHandle_v2_Reply{opened->address, opened->bytes, index, 0});
}

Task<void> CloseMemory(Session& session, DeviceAddress address, Reply reply) {
  const absl::StatusOr<bool> open = co_await session.memory().ipc().Close(address);
  if (!open.ok()) {
    reply.Send(open.status());
    co_return;
  }
  reply.Send(wire::cuIpcCloseMemHandle_Reply{*open ? 1u : 0u, 0});
}

}  // namespace

void cuIpcGetEventHandle(Session& session, const wire::cuIpcGetEventHandle& args, Payload,
                         Reply& reply) {
  const std::shared_ptr<SharedEvent> event = session.contexts().FindSharedEvent(args.event);
  if (event == nullptr)
    return reply.Send(CudaError(kCudaErrorInvalidHandle, "not an event between processes"));
  const absl::StatusOr<SharedEvents::Token> token =
      session.config().shared_event_tokens->Export(session.config().owner.uid, session.id(), event);
  if (!token.ok()) return reply.Send(token.status());
  wire::cuIpcGetEventHandle_Reply body{};
  std::memcpy(body.token.bytes, token->data(), token->size());
  reply.Send(body);
}

void cuIpcOpenEventHandle(Session& session, const wire::cuIpcOpenEventHandle& args, Payload,
                          Reply& reply) {
  reply.Send(OpenEvent(session, args));
}

void cuIpcGetMemHandle(Session& session, const wire::cuIpcGetMemHandle& args, Payload,
                       Reply& reply) {
  const absl::StatusOr<ShareTokenValue> token =
      session.memory().ipc().Show(session.device(), args.address);
  if (!token.ok()) return reply.Send(token.status());
  wire::cuIpcGetMemHandle_Reply body{};
  std::memcpy(body.token.bytes, token->data(), token->size());
  reply.Send(body);
}

void cuIpcOpenMemHandle_v2(Session& session, const wire::cuIpcOpenMemHandle_v2& args, Payload,
                           Reply& reply) {
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  session.executor().Spawn(OpenMemory(session, session.device(), args, std::move(reply)));
}

void cuIpcCloseMemHandle(Session& session, const wire::cuIpcCloseMemHandle& args, Payload,
                         Reply& reply) {
  session.executor().Spawn(CloseMemory(session, args.address, std::move(reply)));
}

}  // namespace detshare::handlers
