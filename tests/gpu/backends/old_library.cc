// Takes the place of a driver that has no functions.
extern "C" int cuGetProcAddress_v2(const char*, void** function, int, unsigned long long, int*) {
  *function = nullptr;
  return 500;  // CUDA_ERROR_NOT_FOUND
}
