// A shared object that is no policy.
extern "C" int SomethingElse() { return 1; }
