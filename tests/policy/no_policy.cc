// A shared object that is not a policy.
extern "C" int SomethingElse() { return 1; }
