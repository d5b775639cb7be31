// Libraries, kernels, global variables and the linker. Programs make these calls rarely.
#include <string>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/quota.h"
#include "policy/status_macros.h"
#include "proto/wire/library.h"
#include "server/backends/images/variable_bytes.h"
#include "server/session/code_table.h"
#include "server/session/handlers/common.h"
#include "server/session/handlers/extent.h"
#include "server/session/image_store.h"
#include "server/session/managed_block.h"
#include "server/session/payload_reader.h"
#include "server/session/pinned_memory.h"
#include "server/session/session_limits.h"
#include "server/session/session_memory.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kMaxOptions = 64;
constexpr uint32_t kMaxLinkInputs = 4096;
constexpr size_t kMaxNameBytes = 64 << 10;

bool ReadOptions(PayloadReader& reader, uint32_t count, std::vector<JitOptionValue>* options) {
  if (count > kMaxOptions) return false;
  for (uint32_t i = 0; i < count; ++i) {
    wire::JitOption option;
    if (!reader.Struct(&option)) return false;
    options->push_back({static_cast<int>(option.option & 0x7FFFFFFF), option.value});
  }
  return true;
}

// Reads a payload that is a name. Returns false when it is empty, too long or contains a NUL.
bool ReadName(Payload payload, std::string* name) {
  if (payload.empty() || payload.size() > kMaxNameBytes) return false;
  name->assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  return name->find('\0') == std::string::npos;
}

template <typename T>
void Append(std::string* body, const T& value) {
  body->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

CompileLogs MakeLogs(const Session& session, uint64_t info_bytes, uint64_t error_bytes) {
  CompileLogs logs;
  logs.info_limit = std::min(info_bytes, session.limits().log_bytes);
  logs.error_limit = std::min(error_bytes, session.limits().log_bytes);
  return logs;
}

void CutLogs(CompileLogs& logs) {
  if (logs.info.size() > logs.info_limit) logs.info.resize(logs.info_limit);
  if (logs.error.size() > logs.error_limit) logs.error.resize(logs.error_limit);
}

// For kImageKept, returns whether the daemon has the image and sets `*kept` to it. For kImageAsked,
// returns whether the daemon may have the image.
bool FindKeptImage(Session& session, const wire::cuLibraryLoadData& args, StoredImage* kept) {
  if (session.config().image_store == nullptr) return false;
  const uid_t user = session.config().owner.uid;
  ContentHash hash;
  std::copy(std::begin(args.hash), std::end(args.hash), hash.begin());
  if (args.source == wire::kImageAsked) return session.config().image_store->MayHave(user, hash);
  std::optional<StoredImage> found = session.config().image_store->Find(user, hash);
  if (found.has_value()) *kept = *std::move(found);
  return kept->memory != nullptr;
}

// 90 for 9.0.
int ComputeCapability(const SessionDevice& device) {
  const auto& attributes = device.device->properties().attributes;
  const auto value = [&](int attribute) {
    const auto found = attributes.find(attribute);
    return found != attributes.end() ? found->second : 0;
  };
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
  return value(kMajor) * 10 + value(kMinor);
}

// Charges the variables of an image to the tenant's quota. Charges nothing when the tenant has no
// limit, because reading an image takes time.
absl::StatusOr<QuotaCharge> TakeForVariables(const SessionDevice& device, Payload image) {
  if (device.quota == nullptr || device.quota->limit() == Quota::kNoLimit) return QuotaCharge();
  return device.memory->TakeQuota(
      images::VariableBytes(std::as_bytes(image), ComputeCapability(device)));
}

Task<void> UnloadLibrary(Session& session, SessionDevice& device, LibraryId library, Reply reply) {
  const absl::Status status = co_await device.coroutine->IdleForMemory();
  // When work is lost, the code stays until the session ends, because a kernel may still run.
  if (status.ok()) session.code().RemoveLibrary(library);
  reply.Send(status);
}

// Returns the image that the call is about: the one in the payload, or one that the daemon has kept, which
// `*kept` then holds. Without an image, sends the reply and returns nothing.
std::optional<Payload> ImageOf(Session& session, const wire::cuLibraryLoadData& args, Payload sent,
                               StoredImage* kept, Reply& reply) {
  if (args.source > wire::kImageKept ||
      (args.source != wire::kImageSent && args.image_bytes != 0)) {
    session.Violate("cuLibraryLoadData: an unknown source of an image");
    reply.Send(InvalidValue("malformed"));
    return std::nullopt;
  }
  if (args.source == wire::kImageSent) {
    session.code().CountReceived(sent.size());
    return sent;
  }
  if (!FindKeptImage(session, args, kept)) {
    wire::cuLibraryLoadData_Reply unknown{};
    unknown.image_unknown = 1;
    reply.Send(unknown);
    return std::nullopt;
  }
  if (args.source == wire::kImageAsked) {
    reply.Send(wire::cuLibraryLoadData_Reply{});
    return std::nullopt;
  }
  return Payload(reinterpret_cast<const uint8_t*>(kept->memory->data()), kept->bytes);
}

// The reply's bytes. `contents`: of the managed variables; empty when another device has them.
std::string ReplyBytes(wire::cuLibraryLoadData_Reply body, const CompileLogs& logs,
                       const ManagedBlock* managed, const std::vector<std::string>& contents) {
  body.info_log_bytes = static_cast<uint32_t>(logs.info.size());
  body.error_log_bytes = static_cast<uint32_t>(logs.error.size());
  if (managed != nullptr) {
    body.managed_count = static_cast<uint32_t>(managed->variables.size());
    body.managed_address = managed->address;
    body.managed_bytes = managed->bytes;
    body.managed_file = managed->file;
  }
  std::string bytes;
  Append(&bytes, body);
  bytes += logs.info;
  bytes += logs.error;
  for (uint32_t i = 0; i < body.managed_count; ++i) {
    const ManagedBlock::Variable& variable = managed->variables[i];
    const std::string_view initial = contents.empty() ? std::string_view() : contents[i];
    Append(&bytes, wire::ManagedVariable{variable.address, variable.bytes,
                                         static_cast<uint32_t>(variable.name.size()),
                                         static_cast<uint32_t>(initial.size())});
    bytes += variable.name;
    bytes += initial;
  }
  return bytes;
}

}  // namespace

void cuLibraryLoadData(Session& session, const wire::cuLibraryLoadData& args, Payload payload,
                       Reply& reply) {
  PayloadReader reader(payload);
  Payload sent;
  std::vector<JitOptionValue> options;
  if (!reader.Bytes(args.image_bytes, &sent) ||
      !ReadOptions(reader, args.jit_option_count, &options) || !reader.empty()) {
    session.Violate("cuLibraryLoadData: sizes do not fit the payload");
    return reply.Send(InvalidValue("malformed"));
  }
  StoredImage kept;
  const std::optional<Payload> found = ImageOf(session, args, sent, &kept, reply);
  if (!found.has_value()) return;
  const Payload image = *found;
  if (args.context != 0) {
    if (absl::Status known = session.UseContext(args.context); !known.ok())
      return reply.Send(known);
  }
  absl::StatusOr<QuotaCharge> room = session.code().TakeRoomForImage(image.size());
  if (!room.ok()) return reply.Send(room.status());
  SessionDevice& device = session.device();
  absl::StatusOr<QuotaCharge> variables = TakeForVariables(device, image);
  if (!variables.ok()) return reply.Send(variables.status());
  CompileLogs logs = MakeLogs(session, args.info_log_bytes, args.error_log_bytes);
  std::shared_ptr<const ManagedBlock> managed;
  std::vector<std::string> contents;  // of its variables; empty when another device has them
  const auto place =
      [&](absl::Span<const ManagedVariable> variables) -> absl::StatusOr<ManagedPlaces> {
    managed = session.code().ManagedOf(args.sibling);
    if (managed != nullptr) return PlacesIn(*managed, variables);
    DETSHARE_ASSIGN_OR_RETURN(
        managed, MakeManagedBlock(session.memory(), device, variables, args.maps_managed != 0));
    contents.resize(variables.size());
    absl::StatusOr<ManagedPlaces> places = PlacesIn(*managed, variables);
    if (!places.ok()) return places;
    places->initialize = [&contents](size_t variable, std::string_view bytes) {
      // npos + 1 is 0.
      contents[variable] = bytes.substr(0, bytes.find_last_not_of('\0') + 1);
    };
    return places;
  };
  absl::StatusOr<std::unique_ptr<Library>> library = device.device->LoadLibrary(
      *device.space,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(image.data()), image.size()), options,
      logs, place);
  CutLogs(logs);

  wire::cuLibraryLoadData_Reply body{};
  absl::Status status = library.status();
  if (library.ok()) {
    body.kernel_count = static_cast<uint32_t>((*library)->KernelNames().size());
    std::vector<QuotaCharge> charges;
    charges.push_back(*std::move(room));
    charges.push_back(*std::move(variables));
    const absl::StatusOr<LibraryId> id = session.code().AddLibrary(
        device, *std::move(library), args.context, image, managed, std::move(charges));
    status = id.status();
    if (id.ok()) body.library = *id;
    body.without_variables =
        managed == nullptr && image.size() <= wire::kSearchedImageBytes &&
        images::HasNoVariables(std::as_bytes(image), ComputeCapability(device));
    if (session.kept_payload() != nullptr && args.source == wire::kImageSent &&
        session.config().image_store != nullptr) {
      session.config().image_store->AddSoon(session.config().owner.uid,
                                            {session.kept_payload(), image.size()});
    }
  }
  const ManagedBlock* const block = status.ok() ? managed.get() : nullptr;
  reply.SendBytes(status, AsBytes(ReplyBytes(body, logs, block, contents)));
}

void cuLibraryUnload(Session& session, const wire::cuLibraryUnload& args, Payload, Reply& reply) {
  CodeTable::LoadedLibrary* const library =
      session.code().FindLibrary(session.device(), args.library);
  if (library == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such library"));
  session.code().EndLibrary(*library);
  session.executor().Spawn(
      UnloadLibrary(session, session.device(), args.library, std::move(reply)));
}

void cuLibraryGetKernel(Session& session, const wire::cuLibraryGetKernel& args, Payload payload,
                        Reply& reply) {
  CodeTable::LoadedLibrary* const library =
      session.code().FindLibrary(session.device(), args.library);
  if (library == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such library"));
  std::string name;
  if (!ReadName(payload, &name)) return reply.Send(InvalidValue("not a name"));
  const absl::StatusOr<KernelId> id = session.code().AddKernel(*library, name);
  if (!id.ok()) return reply.Send(id.status());
  const KernelInfo& info = session.code().FindKernel(session.device(), *id)->info();

  wire::cuLibraryGetKernel_Reply body{};
  body.kernel = *id;
  body.param_count = static_cast<uint32_t>(info.parameters.size());
  body.param_bytes = info.parameter_bytes;
  body.name_bytes = static_cast<uint32_t>(info.name.size());
  static_assert(std::tuple_size_v<decltype(info.attributes)> == wire::kFunctionAttributes);
  std::copy(info.attributes.begin(), info.attributes.end(), body.attributes);
  std::string bytes;
  Append(&bytes, body);
  for (const KernelParameterInfo& parameter : info.parameters) {
    Append(&bytes, wire::KernelParameter{parameter.offset, parameter.bytes});
  }
  bytes += info.name;
  reply.SendBytes(absl::OkStatus(), AsBytes(bytes));
}

void cuLibraryEnumerateKernels(Session& session, const wire::cuLibraryEnumerateKernels& args,
                               Payload, Reply& reply) {
  CodeTable::LoadedLibrary* const library =
      session.code().FindLibrary(session.device(), args.library);
  if (library == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such library"));
  std::string bytes;
  for (const std::string& name : library->library->KernelNames()) {
    bytes += name;
    bytes.push_back('\0');
  }
  reply.SendBytes(absl::OkStatus(), AsBytes(bytes));
}

void cuLibraryGetGlobal(Session& session, const wire::cuLibraryGetGlobal& args, Payload payload,
                        Reply& reply) {
  CodeTable::LoadedLibrary* const library =
      session.code().FindLibrary(session.device(), args.library);
  if (library == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such library"));
  std::string name;
  if (!ReadName(payload, &name)) return reply.Send(InvalidValue("not a name"));
  // Code uses the variable in the managed block, even if the device has a variable of that name.
  if (library->managed != nullptr) {
    if (const ManagedBlock::Variable* const variable = library->managed->Find(name))
      return reply.Send(wire::cuLibraryGetGlobal_Reply{variable->address, variable->bytes});
  }
  const absl::StatusOr<Library::Global> global = library->library->GetGlobal(name);
  if (!global.ok()) return reply.Send(global.status());
  reply.Send(wire::cuLibraryGetGlobal_Reply{global->address, global->bytes});
}

void cuLinkComplete(Session& session, const wire::cuLinkComplete& args, Payload payload,
                    Reply& reply) {
  PayloadReader reader(payload);
  std::vector<LinkInputImage> inputs;
  std::vector<JitOptionValue> options;
  bool sound = args.input_count <= kMaxLinkInputs;
  for (uint32_t i = 0; sound && i < args.input_count; ++i) {
    wire::LinkInput input;
    Payload name, bytes;
    sound = reader.Struct(&input) && reader.Bytes(input.name_bytes, &name) &&
            reader.Bytes(input.bytes, &bytes);
    if (!sound) break;
    LinkInputImage& image = inputs.emplace_back();
    image.type = static_cast<int>(input.type & 0x7FFFFFFF);
    image.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    image.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (!sound || !ReadOptions(reader, args.jit_option_count, &options) || !reader.empty()) {
    session.Violate("cuLinkComplete: sizes do not fit the payload");
    return reply.Send(InvalidValue("malformed"));
  }
  CompileLogs logs = MakeLogs(session, args.info_log_bytes, args.error_log_bytes);
  const absl::StatusOr<std::string> image = session.device().device->Link(inputs, options, logs);
  CutLogs(logs);
  wire::cuLinkComplete_Reply body{};
  body.image_bytes = image.ok() ? image->size() : 0;
  body.info_log_bytes = static_cast<uint32_t>(logs.info.size());
  body.error_log_bytes = static_cast<uint32_t>(logs.error.size());
  std::string bytes;
  Append(&bytes, body);
  if (image.ok()) bytes += *image;
  bytes += logs.info;
  bytes += logs.error;
  reply.SendBytes(image.status(), AsBytes(bytes));
}

}  // namespace detshare::handlers
