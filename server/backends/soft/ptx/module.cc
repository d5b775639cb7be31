#include "server/backends/soft/ptx/module.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "server/backends/soft/ptx/ast.h"
#include "server/backends/soft/ptx/call_graph.h"
#include "server/backends/soft/ptx/code_layout.h"
#include "server/backends/soft/ptx/device_runtime.h"
#include "server/backends/soft/ptx/lower.h"
#include "server/backends/soft/ptx/native_code.h"
#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {

namespace {

using Symbol = SymbolTable::Symbol;

struct BuiltinName {
  std::string_view name;
  Builtin builtin;
};
constexpr BuiltinName kBuiltins[] = {{"vprintf", Builtin::kVprintf},
                                     {"__assertfail", Builtin::kAssertFail},
                                     {"malloc", Builtin::kMalloc},
                                     {"free", Builtin::kFree},
                                     {"cudaGraphSetConditional", Builtin::kSetConditional}};

// The functions behind the older device runtime (CDP1). Relocatable code of CUDA 12 and before
// contains that runtime whether or not it is used.
bool IsOldDeviceRuntime(std::string_view name) {
  return name.starts_with("cnp") || name.starts_with("__cuda_syscall_");
}

// Returns what the software GPU has in place of a function, or kNone.
Builtin BuiltinOf(std::string_view name) {
  for (const BuiltinName& b : kBuiltins) {
    if (b.name == name) return b.builtin;
  }
  if (IsOldDeviceRuntime(name)) return Builtin::kOldDeviceRuntime;
  return DeviceRuntimeBuiltin(name);
}

std::string Name(std::string_view name) {
  std::string out = "'";
  out += name.substr(0, 100);
  out += '\'';
  return out;
}

// Whether a text declares a copy or a fill of the device runtime.
bool CallsTransfer(const ModuleAst& ast) {
  return std::any_of(ast.functions.begin(), ast.functions.end(), [](const FunctionAst& function) {
    return IsTransfer(DeviceRuntimeBuiltin(function.name));
  });
}

void RemoveDuplicates(std::vector<uint32_t>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

// Makes one ModuleCode from several syntax trees. Names that are not visible are local to their
// text.
class Linker {
 public:
  explicit Linker(std::vector<ModuleAst> asts)
      : asts_(std::move(asts)), tables_(asts_.size()), code_(std::make_unique<ModuleCode>()) {}

  absl::StatusOr<std::unique_ptr<ModuleCode>> Run() {
    for (absl::Status (Linker::*step)() :
         {&Linker::Declare, &Linker::Resolve, &Linker::FillGlobals, &Linker::Lower}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    DescribeKernels();
    return std::move(code_);
  }

 private:
  // Gives every definition a symbol.
  absl::Status Declare() {
    uint64_t shared = 0;
    for (size_t m = 0; m < asts_.size(); ++m) {
      ModuleAst& ast = asts_[m];
      code_->version = std::max(code_->version, ast.version);
      code_->target = std::max(code_->target, ast.target);
      for (const Variable& v : ast.variables) {
        if (v.space == Space::kShared) {
          if (v.is_extern || v.unsized) {
            if (absl::Status s =
                    Add(m, v.name, {Symbol::Kind::kDynamicShared, 0, v.align}, false, true, v.line);
                !s.ok())
              return s;
            continue;
          }
          shared = (shared + v.align - 1) / v.align * v.align;
          const Symbol symbol{Symbol::Kind::kShared, 0, shared};
          if (absl::Status s = Add(m, v.name, symbol, v.visible, v.weak, v.line); !s.ok()) return s;
          shared += v.size;
          if (shared > ParseLimits::kSharedBytes)
            return PtxError(v.line, "shared variables are too large");
          continue;
        }
        if (v.is_extern) continue;
        const uint32_t index = static_cast<uint32_t>(globals_.size());
        if (v.weak && visible_.count(v.name) != 0) {
          tables_[m].symbols[v.name] = visible_[v.name];
          continue;
        }
        if (absl::Status s =
                Add(m, v.name, {Symbol::Kind::kGlobal, index, 0}, v.visible, v.weak, v.line);
            !s.ok())
          return s;
        AddGlobal(m, v);
      }
      for (const FunctionAst& f : ast.functions) {
        if (!f.has_body || DeviceRuntimeBuiltin(f.name) != Builtin::kNone) continue;
        if (f.weak && visible_.count(f.name) != 0) {
          tables_[m].symbols[f.name] = visible_[f.name];
          continue;
        }
        const Symbol symbol{f.is_entry ? Symbol::Kind::kKernel : Symbol::Kind::kFunction,
                            static_cast<uint32_t>(functions_.size()), 0};
        if (absl::Status s = Add(m, f.name, symbol, f.visible || f.is_entry, f.weak, f.line);
            !s.ok())
          return s;
        functions_.emplace_back(m, &f);
      }
    }
    module_shared_bytes_ = static_cast<uint32_t>((shared + 15) / 16 * 16);
    return absl::OkStatus();
  }

  absl::Status Add(size_t m, std::string_view name, const Symbol& symbol, bool visible, bool weak,
                   uint32_t line) {
    auto [it, fresh] = tables_[m].symbols.emplace(name, symbol);
    if (!fresh && !weak) return PtxError(line, Name(name) + " is defined twice");
    if (visible && !visible_.emplace(name, symbol).second && !weak) {
      return PtxError(line, Name(name) + " is defined in more than one text");
    }
    return absl::OkStatus();
  }

  void AddGlobal(size_t m, const Variable& v) {
    globals_.emplace_back(m, &v);
    GlobalInfo info;
    info.name = std::string(v.name);
    info.size = v.size;
    info.align = v.align;
    info.space = v.space == Space::kConst ? GlobalSpace::kConst : GlobalSpace::kGlobal;
    info.visible = v.visible || v.weak;
    info.is_extern = v.is_extern;
    info.is_managed = v.managed;
    info.has_initializer = v.has_initializer;
    // Names that are not visible may repeat between texts. The first one wins.
    code_->global_index.emplace(info.name, static_cast<int>(code_->globals.size()));
    code_->globals.push_back(std::move(info));
  }

  // Gives every declaration the symbol of its definition elsewhere.
  absl::Status Resolve() {
    for (size_t m = 0; m < asts_.size(); ++m) {
      auto& symbols = tables_[m].symbols;
      for (const FunctionAst& f : asts_[m].functions) {
        if (symbols.count(f.name) != 0) continue;
        if (const auto it = visible_.find(f.name); it != visible_.end()) {
          symbols.emplace(f.name, it->second);
          continue;
        }
        const Builtin builtin = BuiltinOf(f.name);
        if (builtin == Builtin::kNone) continue;
        symbols.emplace(f.name, Symbol{Symbol::Kind::kBuiltin, static_cast<uint32_t>(builtin), 0});
        if (LaunchesKernel(builtin)) code_->launches_kernels = true;
      }
      for (const Variable& v : asts_[m].variables) {
        if (!v.is_extern || v.space == Space::kShared || symbols.count(v.name) != 0) continue;
        auto it = visible_.find(v.name);
        if (it == visible_.end()) {
          it = visible_
                   .emplace(v.name, Symbol{Symbol::Kind::kGlobal,
                                           static_cast<uint32_t>(globals_.size()), 0})
                   .first;
          AddGlobal(m, v);
        }
        symbols.emplace(v.name, it->second);
      }
      for (const auto& [alias, target] : asts_[m].aliases) {
        const auto it = symbols.find(target);
        if (it == symbols.end())
          return absl::InvalidArgumentError("PTX: .alias of unknown function " + Name(target));
        symbols[alias] = it->second;
      }
    }
    return absl::OkStatus();
  }

  absl::Status FillGlobals() {
    code_->global_data.resize(globals_.size());
    for (size_t i = 0; i < globals_.size(); ++i) {
      const auto& [m, v] = globals_[i];
      GlobalData& data = code_->global_data[i];
      data.image = v->image;
      for (const Relocation& r : v->relocations) {
        const auto it = tables_[m].symbols.find(r.symbol);
        if (it == tables_[m].symbols.end())
          return PtxError(r.line, "unknown name " + Name(r.symbol));
        GlobalReloc out{r.offset, false, it->second.index, r.addend, r.size, r.shift};
        switch (it->second.kind) {
          case Symbol::Kind::kGlobal:
            break;
          case Symbol::Kind::kFunction:
          case Symbol::Kind::kKernel:
            out.is_function = true;
            address_taken_.push_back(it->second.index);
            break;
          default:
            return PtxError(r.line, Name(r.symbol) + " cannot be in an initialiser");
        }
        data.relocations.push_back(out);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Lower() {
    code_->functions.resize(functions_.size());
    size_t branch_target_count = 0;
    for (size_t i = 0; i < functions_.size(); ++i) {
      const auto& [m, ast] = functions_[i];
      FunctionCode& code = code_->functions[i];
      code.name = std::string(ast->name);
      code.is_entry = ast->is_entry;
      LowFunction low;
      low.ast = ast;
      low.code = &code;
      low.branch_target_count = branch_target_count;
      if (absl::Status status = LowerFunction(tables_[m], &low); !status.ok()) return status;
      if (absl::Status status = LayoutCode(&low); !status.ok()) return status;
      branch_target_count = low.branch_target_count;
      code.native = std::make_shared<NativeCode>(&code);
      RemoveDuplicates(&code.callees);
      for (const ConstEntry& entry : code.consts) {
        if (entry.kind == ConstEntry::Kind::kFunction) address_taken_.push_back(entry.index);
      }
    }
    RemoveDuplicates(&address_taken_);
    // The shared variables of functions other than kernels lie behind those of the module.
    uint32_t top = module_shared_bytes_;
    for (FunctionCode& f : code_->functions) {
      if (f.is_entry || f.shared_end == 0) continue;
      top = (top + f.shared_align - 1) / f.shared_align * f.shared_align;
      f.shared_begin = top;
      f.shared_end += top;
      top = f.shared_end;
      f.uses_module_shared = true;
      if (top > ParseLimits::kSharedBytes)
        return absl::InvalidArgumentError("PTX: shared variables are too large");
    }
    common_shared_bytes_ = (top + 15) / 16 * 16;
    return absl::OkStatus();
  }

  void DescribeKernels() {
    const std::vector<CallTotals> totals = TotalsOfCalls(code_->functions, address_taken_);
    uint64_t const_bytes = 0;
    for (const GlobalInfo& g : code_->globals) {
      if (g.space == GlobalSpace::kConst)
        const_bytes = (const_bytes + g.align - 1) / g.align * g.align + g.size;
    }
    for (size_t i = 0; i < functions_.size(); ++i) {
      const FunctionAst& ast = *functions_[i].second;
      if (!ast.is_entry) continue;
      FunctionCode& code = code_->functions[i];
      KernelInfo info;
      info.name = std::string(ast.name);
      uint64_t top = 0;
      for (const Variable& v : ast.params) {
        top = (top + v.align - 1) / v.align * v.align;
        info.params.push_back({static_cast<uint32_t>(top), static_cast<uint32_t>(v.size), v.align});
        top += v.size;
      }
      info.param_bytes = static_cast<uint32_t>(top);
      const CallTotals& total = totals[i];
      if (total.uses_module_shared) {
        const uint32_t align = code.shared_align;
        code.shared_begin = (common_shared_bytes_ + align - 1) / align * align;
        code.shared_end += code.shared_begin;
      }
      info.static_shared_bytes = code.shared_end;
      // The dynamic part lies behind the static one. What aligns it belongs to the static part.
      if (const uint32_t align = total.dynamic_shared_align; align > 16)
        info.static_shared_bytes = (code.shared_end + align - 1) / align * align;
      info.local_bytes_per_thread =
          static_cast<uint32_t>(std::min<uint64_t>(total.local_bytes, ParseLimits::kLocalBytes));
      info.registers_per_thread =
          std::min<uint32_t>((std::max<uint32_t>(total.register_pressure + 6, 8) + 1) / 2 * 2, 255);
      info.const_bytes = static_cast<uint32_t>(std::min<uint64_t>(const_bytes, 0xffffffffu));
      info.required_block = ast.reqntid;
      info.required_cluster = ast.reqcluster;
      info.max_cluster_rank = ast.maxclusterrank;
      info.min_blocks_per_sm = ast.minnctapersm;
      info.max_registers = ast.maxnreg;
      info.explicit_cluster = ast.explicit_cluster;
      info.uses_reserved_shared = total.uses_reserved_shared;
      uint64_t threads = 1024;
      for (const auto& dims : {ast.maxntid, ast.reqntid}) {
        if (dims[0] == 0) continue;
        uint64_t product = 1;
        for (uint32_t d : dims)
          product = std::min<uint64_t>(product * std::max<uint32_t>(d, 1), 1u << 20);
        threads = std::min(threads, product);
      }
      info.max_threads_per_block = static_cast<uint32_t>(threads);
      code_->kernel_index.emplace(info.name, static_cast<int>(code_->kernels.size()));
      code_->kernel_function.push_back(static_cast<uint32_t>(i));
      code_->kernels.push_back(std::move(info));
    }
  }

  std::vector<ModuleAst> asts_;
  std::vector<SymbolTable> tables_;
  std::unordered_map<std::string_view, Symbol> visible_;
  std::vector<std::pair<size_t, const Variable*>> globals_;
  std::vector<std::pair<size_t, const FunctionAst*>> functions_;
  std::vector<uint32_t> address_taken_;
  uint32_t module_shared_bytes_ = 0;
  uint32_t common_shared_bytes_ = 0;
  std::unique_ptr<ModuleCode> code_;
};

uint64_t RelocatedValue(const GlobalReloc& r, const std::vector<uint64_t>& addresses) {
  const uint64_t base = r.is_function ? FunctionAddress(r.index) : addresses[r.index];
  return (base + static_cast<uint64_t>(r.addend)) >> r.shift;
}

}  // namespace

Module::Module(std::unique_ptr<ModuleCode> code) : code_(std::move(code)) {}
Module::~Module() = default;

absl::StatusOr<std::unique_ptr<Module>> Module::Parse(std::string_view ptx_text) {
  return Link({ptx_text});
}

absl::StatusOr<std::unique_ptr<Module>> Module::Link(
    const std::vector<std::string_view>& ptx_texts) {
  std::vector<ModuleAst> asts;
  for (std::string_view text : ptx_texts) {
    absl::StatusOr<ModuleAst> ast = ParsePtx(text);
    if (!ast.ok()) return ast.status();
    if (ast->version == 0) return absl::InvalidArgumentError("PTX: no .version directive");
    if (ast->target == 0) return absl::InvalidArgumentError("PTX: no .target directive");
    asts.push_back(*std::move(ast));
  }
  if (std::any_of(asts.begin(), asts.end(), CallsTransfer)) {
    absl::StatusOr<ModuleAst> ast = ParsePtx(kTransferKernel);
    if (!ast.ok()) return ast.status();
    asts.push_back(*std::move(ast));
  }
  absl::StatusOr<std::unique_ptr<ModuleCode>> code = Linker(std::move(asts)).Run();
  if (!code.ok()) return code.status();
  return std::unique_ptr<Module>(new Module(*std::move(code)));
}

uint32_t Module::ptx_version() const { return code_->version; }
uint32_t Module::target() const { return code_->target; }
bool Module::launches_kernels() const { return code_->launches_kernels; }
const std::vector<KernelInfo>& Module::kernels() const { return code_->kernels; }
const std::vector<GlobalInfo>& Module::globals() const { return code_->globals; }

int Module::FindKernel(std::string_view name) const {
  const auto it = code_->kernel_index.find(std::string(name));
  return it == code_->kernel_index.end() ? -1 : it->second;
}

int Module::FindGlobal(std::string_view name) const {
  const auto it = code_->global_index.find(std::string(name));
  return it == code_->global_index.end() ? -1 : it->second;
}

void Module::WriteInitialImage(size_t index, const std::vector<uint64_t>& addresses,
                               uint8_t* out) const {
  const GlobalInfo& info = code_->globals[index];
  const GlobalData& data = code_->global_data[index];
  const size_t have = std::min<size_t>(data.image.size(), info.size);
  if (have != 0) std::memcpy(out, data.image.data(), have);
  if (info.size > have) std::memset(out + have, 0, info.size - have);
  for (const GlobalReloc& r : data.relocations) {
    const uint64_t value = RelocatedValue(r, addresses);
    if (r.offset + r.size <= info.size) std::memcpy(out + r.offset, &value, r.size);
  }
}

absl::StatusOr<std::unique_ptr<Executable>> Module::Bind(
    const std::vector<uint64_t>& addresses) const {
  if (addresses.size() != code_->globals.size())
    return absl::InvalidArgumentError("the number of addresses is not the number of globals");
  auto executable = std::make_unique<ExecutableCode>();
  executable->module = code_.get();
  for (const FunctionCode& f : code_->functions) {
    AlignedBytes pool = AllocateAligned(f.const_bytes);
    if (pool == nullptr) return absl::ResourceExhaustedError("out of memory for constants");
    for (const ConstEntry& entry : f.consts) {
      uint64_t value = entry.value;
      if (entry.kind == ConstEntry::Kind::kGlobal) value += addresses[entry.index];
      if (entry.kind == ConstEntry::Kind::kFunction) value = FunctionAddress(entry.index);
      if (entry.kind == ConstEntry::Kind::kOwnShared) value += f.shared_begin;
      uint8_t* p = pool.get() + entry.offset;
      switch (entry.reg_class) {
        case RegClass::kPred: {
          const uint32_t mask = value != 0 ? kFullMask : 0;
          std::memcpy(p, &mask, 4);
          break;
        }
        case RegClass::k32: {
          const uint32_t v = static_cast<uint32_t>(value);
          for (uint32_t i = 0; i < kLanes; ++i) std::memcpy(p + 4 * i, &v, 4);
          break;
        }
        case RegClass::k64:
          for (uint32_t i = 0; i < kLanes; ++i) std::memcpy(p + 8 * i, &value, 8);
          break;
        case RegClass::k128:
          for (uint32_t i = 0; i < kLanes; ++i) {
            std::memcpy(p + 16 * i, &value, 8);
            std::memcpy(p + 16 * i + 8, &entry.high, 8);
          }
          break;
      }
    }
    executable->const_pools.push_back(std::move(pool));
  }
  return std::unique_ptr<Executable>(new Executable(this, std::move(executable)));
}

Executable::Executable(const Module* module, std::unique_ptr<ExecutableCode> code)
    : module_(module), code_(std::move(code)) {}
Executable::~Executable() = default;

}  // namespace detshare::soft::ptx
