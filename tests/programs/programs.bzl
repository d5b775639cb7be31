"""The test programs: one row each. programs.txt, which the runners read, is made from these rows.

Tags:
  alone: asks about the whole device, so nothing else may run at the same time
  beyond_native: checks what CUDA promises and NVIDIA's driver does not always keep, so its native run may fail
  driver_api: is linked with -lcuda
  driver_only: needs what the CUDA backend has from NVIDIA's driver alone (its module for managed memory, its loader of machine code), or much memory
  fault: makes the device fault, which natively ends the process and through a daemon all of its sessions
  fork: uses CUDA on both sides of a fork
  gpu_only: needs libraries of machine code, or what the software GPU does not have
  linker: links PTX at run time, or holds relocatable code that the driver has to link
  printf: prints from kernels
  sm90: needs compute capability 9.0
  two_devices: needs two devices that reach each other's memory
"""

# A program is NAME.cu, or NAME.cc if it has no code for the device: nvcc builds that one in a third of the
# time. Programs are C++14, whose headers nvcc reads in less time. cooperative_groups.h, CUB and Thrust need
# C++17.
_CPP14 = ["-std=c++14"]
_CPP17 = ["-std=c++17"]

def _program(name, srcs = None, flags = [], tags = []):
    return struct(
        name = name,
        srcs = srcs,
        flags = ([] if "-std=c++17" in flags else _CPP14) + flags + (["-lcuda"] if "driver_api" in tags else []),
        tags = tags,
    )

PROGRAMS = [
    _program("async_copies", flags = _CPP17),
    _program("async_copies_sm90", srcs = ["async_copies.cu"], flags = _CPP17 + ["-arch=sm_90"], tags = ["sm90"]),
    _program("atomics_global"),
    _program("atomics_shared"),
    _program("barriers"),
    _program("batched_copies", tags = ["driver_api"]),
    _program("bulk_copies", flags = _CPP17 + ["-arch=sm_90"], tags = ["sm90"]),
    _program("clusters", flags = _CPP17 + ["-arch=sm_90"], tags = ["sm90"]),
    _program("context_ids", tags = ["driver_api"]),
    _program("cooperative_grid_sync", flags = _CPP17),
    _program("cooperative_groups_tiles", flags = _CPP17),
    _program("copies_2d"),
    _program("copies_3d"),
    _program("cub_device", flags = _CPP17),
    _program("cublas_sgemm", srcs = ["gpu_only/cublas_sgemm.cc"], flags = ["-lcublas"], tags = ["gpu_only"]),
    _program("cublaslt_matmul", srcs = ["gpu_only/cublaslt_matmul.cc"], flags = ["-lcublasLt"], tags = ["gpu_only"]),
    _program("cudnn_convolution", srcs = ["gpu_only/cudnn_convolution.cc"], flags = ["-lcudnn"], tags = ["gpu_only"]),
    _program("cufft_transforms", flags = ["-lcufft"]),
    _program("curand_generators", srcs = ["gpu_only/curand_generators.cc"], flags = ["-lcurand"], tags = ["gpu_only"]),
    _program("cusolver_dense", srcs = ["gpu_only/cusolver_dense.cc"], flags = ["-lcusolver"], tags = ["gpu_only"]),
    _program("cusparse_products", srcs = ["gpu_only/cusparse_products.cc"], flags = ["-lcusparse"], tags = ["gpu_only"]),
    _program("default_stream_legacy"),
    _program("default_stream_per_thread", flags = ["--default-stream=per-thread"]),
    _program("device_heap"),
    _program("device_printf", tags = ["printf"]),
    _program("device_queries"),
    _program("divergence_recursion"),
    _program("driver_array_arguments", tags = ["driver_api", "sm90"]),
    _program("driver_array_copies", tags = ["driver_api"]),
    _program("driver_contexts", tags = ["driver_api"]),
    _program("driver_copies", tags = ["driver_api"]),
    _program("driver_graph_arguments", tags = ["driver_api"]),
    _program("driver_host_functions", tags = ["driver_api"]),
    _program("driver_launch", tags = ["driver_api"]),
    _program("driver_linker", tags = ["driver_api", "linker"]),
    _program("driver_module_ptx", tags = ["driver_api"]),
    _program("dynamic_parallelism", flags = ["-rdc=true", "-lcudadevrt"], tags = ["linker"]),
    _program(
        "dynamic_parallelism_sm90",
        srcs = ["dynamic_parallelism.cu"],
        flags = ["-arch=sm_90", "-rdc=true", "-lcudadevrt"],
        tags = ["linker", "sm90"],
    ),
    _program("dynamic_shared"),
    _program("error_handling"),
    _program("event_query"),
    _program("float_conversions"),
    _program("float_functions"),
    _program("float_rounding"),
    _program("fork_after_init", tags = ["driver_api", "fork"]),
    _program("fork_before_init", tags = ["fork"]),
    _program("function_attributes"),
    _program("function_pointers"),
    _program("game_of_life"),
    _program("globals_constants"),
    _program("graph_arrays"),
    _program("graph_capture"),
    _program("graph_capture_cases", flags = ["-rdc=true"], tags = ["driver_api", "linker"]),
    _program("graph_capture_errors"),
    _program("graph_conditional", flags = ["-rdc=true"], tags = ["linker"]),
    _program("graph_conditional_threads", flags = ["-rdc=true"], tags = ["beyond_native", "linker"]),
    _program("graph_cooperative", flags = _CPP17),
    _program("graph_generic", tags = ["driver_api"]),
    _program("graph_host", tags = ["driver_api"]),
    _program("graph_memory", tags = ["driver_api"]),
    _program("graph_nodes", tags = ["driver_api"]),
    _program("graph_programmatic", flags = ["-arch=sm_90"], tags = ["sm90"]),
    _program("graph_update"),
    _program("green_contexts", tags = ["driver_api", "sm90"]),
    _program("half_arithmetic"),
    _program("host_functions"),
    _program("host_threads"),
    _program("illegal_address", tags = ["fault"]),
    _program("integer_arithmetic"),
    _program("integer_ptx"),
    _program("ipc_events", tags = ["fork"]),
    _program("ipc_memory", tags = ["fork"]),
    _program("large_copies"),
    _program("launch_attributes"),
    _program("launch_hints", tags = ["driver_api", "driver_only"]),
    _program("large_parameters"),
    _program("legacy_launch", flags = ["-Xcompiler=-Wno-deprecated-declarations"], tags = ["driver_api"]),
    _program("long_kernel"),
    _program("many_launches"),
    _program("managed_variables", tags = ["driver_only"]),
    _program("managed_variables_debug", srcs = ["managed_variables.cu"], flags = ["-arch=sm_90", "-G"], tags = ["driver_only", "sm90"]),
    _program("managed_variables_linked", srcs = ["managed_variables.cu"], flags = ["-rdc=true"], tags = ["driver_only", "linker"]),
    _program("managed_variables_sm90", srcs = ["managed_variables.cu"], flags = ["-arch=sm_90"], tags = ["driver_only", "sm90"]),
    _program("managed_memory"),
    _program("managed_sharing"),
    _program("mapped_counter"),
    _program("matmul_tiled"),
    _program("memory_info", tags = ["alone"]),
    _program("memory_pool_sharing", tags = ["fork"]),
    _program("memory_pools"),
    _program("memory_spaces"),
    _program("memsets"),
    _program("modules_reloaded", tags = ["driver_api"]),
    _program("monte_carlo"),
    _program("nvjitlink_link", srcs = ["gpu_only/nvjitlink_link.cu"], flags = ["-lnvJitLink", "-lnvrtc"], tags = ["driver_api", "gpu_only"]),
    _program("nvrtc_machine_code", flags = ["-lnvrtc"], tags = ["driver_api", "driver_only"]),
    _program("occupancy"),
    _program("old_signatures", tags = ["driver_api"]),
    _program("peer_access", tags = ["two_devices"]),
    _program("pinned_memory"),
    _program("pointer_attributes"),
    _program("prefix_sum"),
    _program("printing_streams", tags = ["printf"]),
    _program("profiler_ranges"),
    _program("query_arguments", tags = ["driver_api"]),
    _program("queue_behind_stall"),
    _program("registered_many"),
    _program("registered_memory"),
    _program("registered_shared", tags = ["fork"]),
    _program(
        "separate_compilation",
        srcs = ["separate_compilation.cu", "separate_compilation_library.cu"],
        flags = ["-rdc=true"],
        tags = ["linker"],
    ),
    _program("stream_memory_ops", tags = ["driver_api"]),
    _program("shared_memory_handles", tags = ["driver_api", "fork"]),
    _program("stream_ordered_alloc"),
    _program("stream_properties"),
    _program("streams_events"),
    _program("surfaces"),
    _program("synchronous_copies", tags = ["beyond_native"]),
    _program("templates_structs"),
    # On an H100 the store of a box that begins before the tensor is an illegal instruction, natively, too.
    _program("tensor_copies", flags = _CPP17 + ["-arch=sm_90a"], tags = ["driver_api", "fault", "sm90"]),
    _program("tensor_maps", srcs = ["gpu_only/tensor_maps.cu"], flags = ["-arch=sm_90a"], tags = ["driver_api", "gpu_only", "sm90"]),
    _program("textures_2d"),
    _program("textures_layered"),
    _program("textures_memory"),
    _program("thread_indexing"),
    _program("thrust_sort", flags = _CPP17),
    _program("two_devices", tags = ["two_devices"]),
    _program("two_modules", srcs = ["two_modules.cu", "two_modules_second.cu"]),
    _program("unified_copies"),
    _program("vector_add"),
    _program("virtual_functions"),
    _program("virtual_memory", tags = ["driver_api"]),
    _program("warp_shuffle"),
    _program("warp_votes"),
]

def programs_list():
    """The text of programs.txt: a program a line, its name and its tags (`-` for none), separated by commas."""
    return "\n".join([
        "%s %s" % (program.name, ",".join(program.tags) or "-")
        for program in PROGRAMS
    ]) + "\n"
