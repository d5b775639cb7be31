#include "server/services/control_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/call_parts.h"
#include "server/services/control_service.h"

namespace detshare {

ControlCallReactor::ControlCallReactor(FindWorker find, proto::CallReply* reply)
    : find_(std::move(find)), reply_(reply) {
  StartRead(&part_);
}

void ControlCallReactor::OnReadDone(bool ok) {
  if (!ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "the call ends before its payload"});
  grpc::Status status;
  if (find_ != nullptr) status = Begin();
  if (status.ok()) status = Append();
  if (!status.ok()) return Finish(status);
  if (room_taken_ && rest_bytes() != 0) return StartRead(&part_);
  status = Submit();
  if (!status.ok()) Finish(status);
}

grpc::Status ControlCallReactor::Begin() {
  request_ = std::move(*part_.mutable_request());
  const std::shared_ptr<SessionWorker> worker = std::exchange(find_, nullptr)(request_.session());
  if (worker == nullptr) return kNoSuchSession;
  if (request_.op() > UINT16_MAX) return {grpc::StatusCode::INVALID_ARGUMENT, "no such operation"};
  if (request_.payload_bytes() > kMaxCallBytes) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("a call has at most ", kMaxCallBytes, " bytes")};
  }
  if (part_.payload().size() > kFirstCallPartBytes || request_.args().size() > kFirstCallPartBytes)
    return {grpc::StatusCode::INVALID_ARGUMENT, "the first part of a call is too long"};
  worker_ = worker;
  replies_ = worker->replies();
  return grpc::Status::OK;
}

grpc::Status ControlCallReactor::Append() {
  if (part_.payload().size() > rest_bytes())
    return {grpc::StatusCode::INVALID_ARGUMENT, "a call is longer than it says"};
  payload_->append(part_.payload());
  part_ = {};
  return grpc::Status::OK;
}

grpc::Status ControlCallReactor::Submit() {
  const std::shared_ptr<SessionWorker> worker = worker_.lock();
  if (worker == nullptr) return kNoSuchSession;
  ControlCall call;
  call.op = static_cast<uint16_t>(request_.op());
  call.device = request_.device();
  call.context = request_.context();
  call.after = request_.after();
  call.args = {reinterpret_cast<const uint8_t*>(request_.args().data()), request_.args().size()};
  call.payload = payload_;
  call.room = std::move(room_);
  call.done = [this](int result, std::string body) { Reply(result, std::move(body)); };
  if (call.rest_bytes = rest_bytes(); call.rest_bytes != 0) {
    call.read_rest = [this](CallRoom room) {
      room_ = std::move(room);
      room_taken_ = true;
      payload_->reserve(request_.payload_bytes());
      StartRead(&part_);
    };
  }
  worker->Call(std::move(call));
  return grpc::Status::OK;
}

void ControlCallReactor::Reply(int result, std::string body) {
  unsent_ = QuotaCharge(replies_);
  unsent_.Set(body.size());
  reply_->set_result(result);
  reply_->set_body(std::move(body));
  Finish(grpc::Status::OK);
}

}  // namespace detshare
