// The start of a program that is linked with link_stubs.py. Since glibc 2.34 the C library runs a
// program's constructors, and the linker's crt1.o expects that. Older ones call a function of the
// program's, which used to be in crt1.o's companions.
extern "C" {

using Constructor = void (*)(int argc, char** argv, char** environment);

// From the linker, and from crti.o.
extern Constructor __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor __init_array_end[] __attribute__((visibility("hidden")));
void _init() __attribute__((visibility("hidden")));

int StartOfGlibc(int (*main)(int, char**, char**), int argc, char** argv, Constructor init,
                 void (*fini)(), void (*rtld_fini)(), void* stack_end);
__asm__(".symver StartOfGlibc, __libc_start_main@GLIBC_2.2.5");

static void RunConstructors(int argc, char** argv, char** environment) {
  _init();
  for (Constructor* at = __init_array_start; at != __init_array_end; ++at)
    (*at)(argc, argv, environment);
}

// In place of glibc's. crt1.o gives no `init`. Newer versions of glibc call one that they are given
// instead of looking for constructors. The loader runs destructors.
__attribute__((visibility("hidden"))) int __libc_start_main(int (*main)(int, char**, char**),
                                                            int argc, char** argv, Constructor,
                                                            void (*fini)(), void (*rtld_fini)(),
                                                            void* stack_end) {
  return StartOfGlibc(main, argc, argv, RunConstructors, fini, rtld_fini, stack_end);
}

}  // extern "C"
