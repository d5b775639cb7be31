#include "tools/sim/device_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "policy/partition_pool.h"
#include "tools/sim/group_switches.h"

namespace detshare::sim {
namespace {

using policy::CoroutineView;
using policy::Grant;
using policy::kForever;
using policy::kMicrosecond;
using policy::kMillisecond;
using policy::Limits;
using policy::Nanoseconds;

constexpr double kNever = 1e300;
// All times are nanoseconds.
// How far a program without a window is ahead of the hardware.
constexpr double kLaunchAhead = 10e6;
// A language model's program takes this time on the host between two steps.
constexpr double kHostGap = 300e3;
constexpr double kStretch = 10e6;
// With turns, a stretch must have many of them.
constexpr double kStretchOfTurns = 1e9;
constexpr int kStretchSteps = 3;
// A shorter stretch is not worth stepping over.
constexpr double kWorthwhile = 20e6;

struct Sequence {
  double arrived = 0, first_token = 0;
  uint32_t prompt = 0;
  int64_t left = 0, made = 0;  // tokens
};

// A program's progress at a moment.
struct Mark {
  double at = -1;
  double done = 0, busy = 0;  // device_seconds, busy_seconds
};

struct State {
  const Program* program = nullptr;
  ProgramResult* result = nullptr;
  size_t next_request = 0;
  std::deque<size_t> waiting;
  std::vector<Sequence> batch;

  // The step that the program is in.
  enum class Step { kNone, kGap, kPrefill, kDecode, kRequest, kTraining };
  Step step = Step::kNone;
  Work work;
  double done = 0;     // nanoseconds of work.alone()
  double gap_end = 0;  // the end of a kGap
  size_t current = 0;  // the index of the request in a kPrefill or kRequest
  double busy_since = 0;
  double burst_from = 0, idle_from = 0;

  CoroutineView view;
  Grant grant;
  double budget = kNever;
  bool stopped = false;
  bool disturbed = false;      // the burst began beside a long operation of another program
  double drain = 0;            // nanoseconds of work that a stopped program has in the hardware
  double throttled_since = 0;  // when its throttle began, if it is stopped
  double last_window = kLaunchAhead;
  bool has_turn = false;     // its work is in the hardware, among that of its turn group
  bool turn_urgent = false;  // ... and urgent
  policy::CoroutineId turn_group = 0;

  // The present stretch, measured from the end of one step to the end of another.
  Mark first, last;
  int steps = 0;
  double part_of_step = 0;  // the fraction of a step that is left after stepping over a stretch

  bool has_work() const { return step != Step::kNone && step != Step::kGap; }
};

class Simulation {
 public:
  Simulation(const policy::DeviceShape& device, policy::Policy& policy,
             const std::vector<Program>& programs, double hours)
      : device_(device), policy_(policy), end_(hours * 3600e9), switches_(device.preemption) {
    partitions_.push_back({});
    for (const policy::SmRange& range : policy::StandardPartitions(device)) {
      partitions_.push_back(range);
    }
    result_.programs.resize(programs.size());
    states_.resize(programs.size());
    for (const Program& program : programs) tenants_.push_back(program.tenant);
    takes_turns_ = policy.TakesTurns(tenants_);
    for (const policy::SmRange& range : policy.Partitions(device, tenants_)) {
      if (policy::IndexOf(partitions_, range) == 0 && !range.whole()) partitions_.push_back(range);
    }
    for (size_t i = 0; i < programs.size(); ++i) {
      State& state = states_[i];
      state.program = &programs[i];
      state.result = &result_.programs[i];
      state.view.id = i + 1;
      state.view.tenant = &tenants_[i];
      state.view.preempts = device.preemption > 0;
      const bool model = programs[i].kind == Program::Kind::kLanguageModel;
      const bool training = programs[i].kind == Program::Kind::kTraining;
      const Operations operations = model      ? kDecodeOperations
                                    : training ? kTrainingOperations
                                               : kFunctionOperations;
      state.view.typical_operation = operations.typical;
      state.view.longest_operation = operations.longest;
      const Work typical = model      ? programs[i].model.Decode(8, 8000)
                           : training ? programs[i].step
                                      : Work{1, 0.3};
      state.view.memory_bound = typical.memory >= typical.arithmetic ? 0.9 : 0.1;
      if (training) Begin(state, State::Step::kTraining, programs[i].step);
    }
  }

  DeviceResult Run() {
    Arrivals();
    Decide();
    while (now_ < end_) {
      Flow();
      if (StepOver()) continue;
      const double next = std::min(NextEvent(), end_);
      Advance(next - now_);
      now_ = next;
      bool ask = Arrivals();
      ask = Ends() || ask;
      if (ask || now_ >= ask_at_) Decide();
    }
    for (State& state : states_) {
      state.result->busy_seconds = Busy(state);
      state.result->unfinished = state.waiting.size() + state.batch.size() +
                                 (state.step == State::Step::kRequest) +
                                 (state.step == State::Step::kPrefill);
    }
    return std::move(result_);
  }

 private:
  Nanoseconds Now() const { return static_cast<Nanoseconds>(now_); }

  // ---- what programs do

  void Begin(State& state, State::Step step, const Work& work) {
    const bool had = state.has_work();
    state.step = step;
    state.work = work;
    state.done = 0;
    state.view.tokens.prefill = step == State::Step::kPrefill;
    state.view.tokens.step_work = static_cast<Nanoseconds>(work.alone());
    if (step == State::Step::kPrefill) {
      state.view.tokens.prefill_since = Now();
      state.view.typical_operation = kPrefillOperations.typical;
    }
    if (step == State::Step::kDecode) {
      state.view.typical_operation = kDecodeOperations.typical;
      state.view.tokens.decode_work = static_cast<Nanoseconds>(work.alone());
    }
    if (had) return;
    state.disturbed = std::any_of(states_.begin(), states_.end(), [&](const State& other) {
      return &other != &state && other.has_work() && !other.stopped &&
             other.view.typical_operation >= other.grant.idle.long_operation;
    });
    state.busy_since = now_;
    state.view.has_work = true;
    state.view.changed_at = Now();
    Learn(&state.view.typical_gap, now_ - state.idle_from);
    state.burst_from = state.result->device_seconds;
  }

  void End(State& state, State::Step step) {
    state.result->busy_seconds += (now_ - state.busy_since) / 1e9;
    state.step = step;
    state.stopped = false;
    state.view.has_work = false;
    state.view.changed_at = Now();
    state.view.tokens.prefill = false;
    state.idle_from = now_;
    Learn(&state.view.typical_burst, (state.result->device_seconds - state.burst_from) * 1e9);
  }

  static void Learn(Nanoseconds* mean, double value) {
    *mean = static_cast<Nanoseconds>(*mean == 0 ? value : 0.9 * *mean + 0.1 * value);
  }

  // Begins the program's next step after the end of a step, or when a request arrived.
  void Next(State& state) {
    const Program& program = *state.program;
    if (program.kind == Program::Kind::kTraining) {
      Begin(state, State::Step::kTraining, program.step);
      return;
    }
    if (program.kind == Program::Kind::kService) {
      if (state.waiting.empty()) {
        End(state, State::Step::kNone);
        return;
      }
      state.current = state.waiting.front();
      state.waiting.pop_front();
      const double work = program.requests[state.current].seconds * 1e9;
      Begin(state, State::Step::kRequest, {work, 0.3 * work});
      return;
    }
    const bool room = static_cast<int>(state.batch.size()) < program.model.max_sequences;
    if (!state.waiting.empty() && room) {
      state.current = state.waiting.front();
      state.waiting.pop_front();
      Begin(state, State::Step::kPrefill,
            program.model.Prefill(program.requests[state.current].prompt));
      Disturb();
    } else if (!state.batch.empty()) {
      double context = 0;
      for (const Sequence& sequence : state.batch) {
        context += static_cast<double>(sequence.prompt + sequence.made);
      }
      Begin(state, State::Step::kDecode,
            program.model.Decode(static_cast<double>(state.batch.size()), context));
    } else {
      End(state, State::Step::kNone);
    }
  }

  bool Arrivals() {
    bool began = false;
    for (State& state : states_) {
      const std::vector<Request>& requests = state.program->requests;
      bool arrived = false;
      while (state.next_request < requests.size() &&
             requests[state.next_request].at * 1e9 <= now_) {
        state.waiting.push_back(state.next_request++);
        arrived = true;
      }
      if (!arrived) continue;
      Disturb();
      if (state.step == State::Step::kNone) {
        Next(state);
        began = true;
      }
    }
    return began;
  }

  // Ends steps that are done. Returns whether a program's work began or ended.
  bool Ends() {
    bool changed = false;
    for (State& state : states_) {
      if (state.step == State::Step::kGap && state.gap_end <= now_) {
        Next(state);
        changed = true;
      }
      if (!state.has_work() || state.work.alone() - state.done > 0.5) continue;
      const std::vector<Request>& requests = state.program->requests;
      switch (state.step) {
        case State::Step::kTraining:
          Next(state);
          continue;
        case State::Step::kRequest:
          state.result->latency.push_back(
              static_cast<float>(now_ / 1e9 - requests[state.current].at));
          Disturb();
          Next(state);
          break;
        case State::Step::kPrefill: {
          const Request& request = requests[state.current];
          state.result->ttft.push_back(static_cast<float>(now_ / 1e9 - request.at));
          Sequence sequence{request.at * 1e9, now_, request.prompt,
                            static_cast<int64_t>(request.output) - 1, 1};
          if (sequence.left > 0) {
            state.batch.push_back(sequence);
          } else {
            state.result->latency.push_back(static_cast<float>(now_ / 1e9 - request.at));
          }
          Disturb();
          Token(state, 1);
          break;
        }
        case State::Step::kDecode:
          for (Sequence& sequence : state.batch) {
            --sequence.left;
            ++sequence.made;
          }
          Token(state, 1);
          Finish(state);
          MarkStep(state);
          break;
        default:
          break;
      }
      changed = true;
    }
    return changed;
  }

  // The program has read a token and prepares the next step.
  void Token(State& state, uint64_t count) {
    policy::TokenView& tokens = state.view.tokens;
    if (tokens.tokens > 0) Learn(&tokens.recent_tpot, now_ - static_cast<double>(tokens.last_at));
    tokens.tokens += count;
    tokens.last_at = Now();
    const bool more = !state.batch.empty() || !state.waiting.empty();
    End(state, more ? State::Step::kGap : State::Step::kNone);
    state.gap_end = now_ + kHostGap;
  }

  void Finish(State& state) {
    const size_t before = state.batch.size();
    std::erase_if(state.batch, [&](const Sequence& sequence) {
      if (sequence.left > 0) return false;
      state.result->latency.push_back(static_cast<float>((now_ - sequence.arrived) / 1e9));
      state.result->tpot.push_back(static_cast<float>((now_ - sequence.first_token) / 1e9 /
                                                      static_cast<double>(sequence.made - 1)));
      return true;
    });
    if (state.batch.size() != before) Disturb();
    if (state.batch.empty() && state.waiting.empty()) state.step = State::Step::kNone;
  }

  // ---- what the policy decides

  void Decide() {
    ++result_.decisions;
    views_.clear();
    const auto skipped = static_cast<Nanoseconds>(skipped_);
    for (State& state : states_) {
      NoteInFlight(state);
      state.view.device_time = static_cast<Nanoseconds>(state.result->device_seconds * 1e9);
      state.view.throttled_since =
          state.stopped ? static_cast<Nanoseconds>(state.throttled_since) : 0;
      views_.push_back(state.view);
      CoroutineView& view = views_.back();
      for (Nanoseconds* time :
           {&view.changed_at, &view.opened_at, &view.in_flight_since, &view.throttled_since,
            &view.tokens.last_at, &view.tokens.prefill_since})
        *time -= *time != 0 ? skipped : 0;
    }
    policy::Snapshot snapshot;
    snapshot.now = Now() - skipped;
    snapshot.device = device_;
    snapshot.partitions = partitions_;
    snapshot.tenants = tenants_;
    snapshot.coroutines = views_;
    policy::Decision decision = policy_.Decide(snapshot);
    ask_at_ = decision.ask_again_at == kForever
                  ? kNever
                  : std::max(static_cast<double>(decision.ask_again_at) + skipped_, now_ + 1e3);
    for (size_t i = 0; i < states_.size(); ++i) {
      State& state = states_[i];
      state.grant = std::move(decision.grants[i]);
      const bool alone = states_.size() == 1;
      if (alone) state.grant.idle.window = kForever;  // no program can restrict it
      state.budget = alone || state.grant.budget == kForever
                         ? kNever
                         : static_cast<double>(state.grant.budget);
    }
  }

  const Limits& LimitsOf(const State& state) const {
    bool beside = false;
    for (const State& other : states_) {
      if (!other.has_work() || other.grant.rank >= state.grant.rank) continue;
      if (now_ < ContentionEnd(other)) return state.grant.contended;
      beside = true;
    }
    return beside ? TailLimits(state.grant) : state.grant.idle;
  }

  // The end of the contention phase of the running burst.
  static double ContentionEnd(const State& state) {
    const double burst = (state.result->device_seconds - state.burst_from) * 1e9;
    const Nanoseconds end = policy::ContentionPhaseEnd(
        state.grant.contention_phase, state.view.changed_at, state.view.typical_burst,
        static_cast<Nanoseconds>(burst), state.disturbed);
    return end == kForever ? kNever : static_cast<double>(end);
  }

  // ---- the hardware

  // Whether the program's work is of the urgent time-slice group.
  static bool IsUrgent(const State& state) { return state.grant.urgent && state.view.preempts; }

  // Notes for the policy whether the program has work in the hardware.
  void NoteInFlight(State& state) const {
    double in_flight = 0;
    if (takes_turns_ && state.has_turn && state.has_work())
      in_flight = state.stopped ? std::max(0.0, state.drain - 0.5) : 1;
    if ((in_flight > 0) != (state.view.in_flight > 0)) state.view.in_flight_since = Now();
    state.view.in_flight = static_cast<Nanoseconds>(std::ceil(in_flight));
  }

  // Takes from flowing_ the programs that wait for the work of another turn group.
  void WaitForTurns() {
    std::array<const State*, 2> present{};
    for (State& state : states_) {
      const auto flows = std::find(flowing_.begin(), flowing_.end(), &state - states_.data());
      state.has_turn =
          state.has_turn && flows != flowing_.end() && state.turn_urgent == IsUrgent(state);
      if (state.has_turn) present[state.turn_urgent] = &state;
    }
    std::erase_if(flowing_, [&](size_t i) {
      State& state = states_[i];
      const bool urgent = IsUrgent(state);
      if (state.has_turn) return false;
      // Nothing of a stopped program is in the hardware, if it had no turn before.
      if (state.stopped) state.drain = std::min(state.drain, 0.0);
      if (state.stopped ||
          (present[urgent] != nullptr && present[urgent]->turn_group != state.grant.turn_group)) {
        return true;
      }
      state.has_turn = true;
      state.turn_urgent = urgent;
      state.turn_group = state.grant.turn_group;
      present[urgent] = &state;
      return false;
    });
    for (State& state : states_) NoteInFlight(state);
  }

  // Computes which programs run now, and how fast.
  void Flow() {
    running_.clear();
    flowing_.clear();
    bool urgent_work = false, ordinary_work = false;
    for (size_t i = 0; i < states_.size(); ++i) {
      State& state = states_[i];
      if (!state.has_work()) continue;
      const Limits& limits = LimitsOf(state);
      const bool stop = limits.window == 0;
      if (stop && !state.stopped) {
        state.throttled_since = now_;
        state.drain =
            std::min(state.last_window + static_cast<double>(state.view.typical_operation) / 2,
                     state.work.alone() - state.done);
      }
      state.stopped = stop;
      if (!stop) {
        state.last_window =
            limits.window == kForever ? kLaunchAhead : static_cast<double>(limits.window);
      }
      if (stop && now_ - state.throttled_since >= static_cast<double>(limits.max_throttle) - 1) {
        // After the longest throttle, one operation goes to the hardware.
        state.drain += static_cast<double>(state.view.typical_operation);
        state.throttled_since = now_;
      }
      if (stop && state.drain <= 0.5) continue;
      (IsUrgent(state) ? urgent_work : ordinary_work) = true;
      flowing_.push_back(i);
    }
    if (takes_turns_) {
      WaitForTurns();
      const auto urgent = std::count_if(flowing_.begin(), flowing_.end(),
                                        [this](size_t i) { return IsUrgent(states_[i]); });
      urgent_work = urgent > 0;
      ordinary_work = static_cast<size_t>(urgent) < flowing_.size();
    }
    switches_.Update(urgent_work, ordinary_work, now_);
    std::erase_if(flowing_, [&](size_t i) {
      return IsUrgent(states_[i]) != switches_.urgent() || now_ < switches_.runs_from();
    });
    for (const size_t i : flowing_) running_.push_back({RangeOf(states_[i]), states_[i].work});
    Rates(device_, running_, &rates_);
  }

  // The SMs on which the program's operations run.
  policy::SmRange RangeOf(const State& state) const {
    if (IsUrgent(state)) return {};
    const Limits& limits = LimitsOf(state);
    const bool is_long = state.view.typical_operation >= limits.long_operation;
    return partitions_[is_long ? limits.long_partition : limits.partition];
  }

  double NextEvent() const {
    double next = ask_at_;
    if (switches_.runs_from() > now_) next = std::min(next, switches_.runs_from());
    for (const State& state : states_) {
      if (state.step == State::Step::kGap) next = std::min(next, state.gap_end);
      if (state.next_request < state.program->requests.size()) {
        next = std::min(next, state.program->requests[state.next_request].at * 1e9);
      }
      if (state.has_work() && state.stopped) {
        next = std::min(next,
                        state.throttled_since + static_cast<double>(LimitsOf(state).max_throttle));
      }
      if (state.has_work() && ContentionEnd(state) > now_)
        next = std::min(next, ContentionEnd(state));
    }
    for (size_t k = 0; k < flowing_.size(); ++k) {
      const State& state = states_[flowing_[k]];
      if (rates_[k] <= 0) continue;
      double left = std::min(state.work.alone() - state.done, state.budget);
      if (state.stopped) left = std::min(left, state.drain);
      next = std::min(next, now_ + std::max(1.0, left / rates_[k]));
    }
    return std::max(next, now_ + 1);
  }

  void Advance(double time) {
    for (size_t k = 0; k < flowing_.size(); ++k) {
      State& state = states_[flowing_[k]];
      const double done = std::min(time * rates_[k], state.work.alone() - state.done);
      state.done += done;
      state.result->device_seconds += done / 1e9;
      if (state.stopped) state.drain -= done;
      if (state.budget < kNever) {
        state.budget -= done;
        if (state.budget <= 0.5) ask_at_ = now_;  // it is used up
      }
    }
  }

  // ---- stretches

  // Seconds with work until now.
  double Busy(const State& state) const {
    return state.result->busy_seconds + (state.has_work() ? (now_ - state.busy_since) / 1e9 : 0);
  }

  void Disturb() {
    for (State& state : states_) {
      state.first.at = state.last.at = -1;
      state.steps = 0;
    }
  }

  void SetMark(State& state) const {
    const Mark mark{now_, state.result->device_seconds, Busy(state)};
    if (state.first.at < 0) {
      state.first = mark;
    } else {
      state.last = mark;
      ++state.steps;
    }
  }

  // Trainings are measured over the steps of the first working language model. So the measurement
  // has as many pauses between the model's steps as it has steps.
  void MarkStep(State& model) {
    SetMark(model);
    for (const State& other : states_) {
      if (&other == &model) break;
      if (IsModel(other) && other.step != State::Step::kNone) return;
    }
    for (State& other : states_) {
      if (other.step == State::Step::kTraining) SetMark(other);
    }
  }

  static bool IsModel(const State& state) {
    return state.program->kind == Program::Kind::kLanguageModel;
  }

  // Steps over the present stretch, to shortly before its end. False if there is none or it is too
  // short.
  bool StepOver() {
    double until = end_;
    bool models = false;
    for (const State& state : states_) {
      models = models || (IsModel(state) && state.step != State::Step::kNone);
      if (state.next_request < state.program->requests.size()) {
        until = std::min(until, state.program->requests[state.next_request].at * 1e9);
      }
    }
    double skip = until - now_ - 1e3;
    if (skip < kWorthwhile) return false;
    bool busy = false;
    for (State& state : states_) {
      if (state.step == State::Step::kNone) continue;
      busy = true;
      if (state.program->kind == Program::Kind::kService) return false;
      if (!models) SetMark(state);
      const double passed = state.last.at - state.first.at;
      if (state.last.at < 0 || passed < (takes_turns_ ? kStretchOfTurns : kStretch)) return false;
      if (!IsModel(state)) continue;
      if (state.steps < kStretchSteps || state.step == State::Step::kPrefill) return false;
      if (state.batch.empty()) return false;
      int64_t left = state.batch.front().left;
      for (const Sequence& sequence : state.batch) left = std::min(left, sequence.left);
      skip = std::min(skip, static_cast<double>(left - 2) * passed / state.steps);
    }
    if (!busy || skip < kWorthwhile) return false;
    const auto shift = static_cast<Nanoseconds>(skip);
    for (State& state : states_) {
      if (state.step == State::Step::kNone) continue;
      const double passed = state.last.at - state.first.at;
      const double done = (state.last.done - state.first.done) * skip / passed;
      state.result->device_seconds += done;
      state.burst_from += done;
      if (state.has_work()) state.busy_since += skip;
      state.result->busy_seconds += (state.last.busy - state.first.busy) * skip / passed;
      state.view.changed_at += shift;
      state.gap_end += skip;
      state.throttled_since += skip;
      state.view.in_flight_since += shift;
      state.idle_from += skip;
      state.view.tokens.last_at += shift;
      if (!IsModel(state)) continue;
      const double steps = skip * state.steps / passed + state.part_of_step;
      const auto whole = static_cast<int64_t>(steps);
      state.part_of_step = steps - static_cast<double>(whole);
      for (Sequence& sequence : state.batch) {
        sequence.left -= whole;
        sequence.made += whole;
      }
      state.view.tokens.tokens += static_cast<uint64_t>(whole);
    }
    now_ += skip;
    // The accounts of turns know nothing of the time that was stepped over.
    if (takes_turns_) skipped_ += static_cast<double>(shift);
    Disturb();
    Decide();
    return true;
  }

  const policy::DeviceShape device_;
  policy::Policy& policy_;
  const double end_;
  GroupSwitches switches_;
  std::vector<policy::SmRange> partitions_;
  std::vector<policy::Tenant> tenants_;
  std::vector<State> states_;
  std::vector<CoroutineView> views_;
  std::vector<Running> running_;
  std::vector<size_t> flowing_;  // the index in states_ for each element of running_ and rates_
  std::vector<double> rates_;
  double now_ = 0;  // nanoseconds
  bool takes_turns_ = false;
  double skipped_ = 0;  // nanoseconds that the policy's clock is behind now_
  double ask_at_ = kNever;
  DeviceResult result_;
};

}  // namespace

DeviceResult SimulateDevice(const policy::DeviceShape& device, policy::Policy& policy,
                            const std::vector<Program>& programs, double hours) {
  return Simulation(device, policy, programs, hours).Run();
}

}  // namespace detshare::sim
