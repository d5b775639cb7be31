// Takes the place of DetShare's own libcuda.
extern "C" const char* detshare_shim_version() { return "test"; }
