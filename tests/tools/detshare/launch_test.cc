// The launcher as users run it: environment, exit codes, signals, a private daemon.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

struct Ran {
  int code = -1;       // exit code, or 1000 + signal
  std::string output;  // stdout and stderr together
};

std::string Absolute(const char* variable) {
  return std::filesystem::absolute(getenv(variable)).string();
}

class Running {
 public:
  explicit Running(const std::vector<std::string>& arguments, bool with_shim = true) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const std::string shim = std::filesystem::path(Absolute("SHIM")).parent_path().string();
    const std::string launcher = Absolute("LAUNCHER"), daemon = Absolute("DAEMON");
    pid = fork();
    if (pid == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      setenv("DETSHARE_LIB_DIR", with_shim ? shim.c_str() : "/nowhere", 1);
      setenv("DETSHARE_DAEMON", daemon.c_str(), 1);
      setenv("LD_LIBRARY_PATH", "/old", 1);
      std::vector<char*> argv = {const_cast<char*>(launcher.c_str())};
      for (const std::string& argument : arguments)
        argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(99);
    }
    close(ends[1]);
    output = ends[0];
  }
  // Reads the output up to and including the text. Returns "" if the program ends first.
  std::string ReadUntil(const std::string& text) {
    std::string seen;
    char byte;
    while (seen.find(text) == std::string::npos) {
      if (read(output, &byte, 1) != 1) return "";
      seen.push_back(byte);
    }
    return seen;
  }
  Ran Finish() {
    Ran ran;
    char buffer[4096];
    ssize_t count;
    while ((count = read(output, buffer, sizeof(buffer))) > 0) ran.output.append(buffer, count);
    close(output);
    int status = 0;
    waitpid(pid, &status, 0);
    ran.code = WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
    return ran;
  }

  pid_t pid = -1;
  int output = -1;
};

Ran Run(const std::vector<std::string>& arguments) { return Running(arguments).Finish(); }

TEST_CASE("The program gets the shim first on its library path, and the requested settings") {
  const Ran ran = Run({"run", "--tenant", "alice", "--device", "1", "--device", "GPU-x", "--socket",
                       "/s/d.sock", "--log-level", "debug", "--", "/bin/sh", "-c",
                       "echo $DETSHARE_TENANT $DETSHARE_DEVICES $DETSHARE_SOCKET $DETSHARE_LOG; "
                       "echo $LD_LIBRARY_PATH"});
  CHECK(ran.code == 0);
  CHECK_THAT(ran.output, Catch::Contains("alice 1,GPU-x /s/d.sock debug\n"));
  CHECK_THAT(ran.output, Catch::Contains("client_shim:/old\n"));
}

TEST_CASE("Every process of a run asks for the same devices") {
  const std::string print = "echo $DETSHARE_DEVICE_COUNT $DETSHARE_RUN";
  const auto run = [&](std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), {"run", "--socket=/s"});
    options.insert(options.end(), {"--", "/bin/sh", "-c", script});
    return Run(options).output;
  };
  const std::string first = run({"--devices", "2"}, print), second = run({"--devices=2"}, print);
  CHECK(first.size() == 2 + 32 + 1);
  CHECK(first.rfind("2 ", 0) == 0);
  CHECK(first != second);
  CHECK(run({}, print).size() == 1 + 32);
  // A launcher that another launcher started uses the same daemon, unless it needs other devices.
  const std::string nested = Absolute("LAUNCHER") + " run ";
  const std::string same =
      run({"--devices", "2"}, print + "; " + nested + "-- sh -c '" + print + "'");
  CHECK(same.substr(0, 35) == same.substr(35));
  const std::string other =
      run({"--devices", "2"}, print + "; " + nested + "--devices 0 -- sh -c '" + print + "'");
  CHECK(other.substr(35, 2) == "0 ");
  CHECK(other.substr(2, 32) != other.substr(37, 32));
  for (const char* wrong : {"-1", "65", "many", ""})
    CHECK(Run({"run", "--devices", wrong, "--", "true"}).code == 125);
}

TEST_CASE("Everything after the program's name belongs to the program") {
  CHECK(Run({"run", "/bin/sh", "-c", "echo $0 $1", "--tenant", "--"}).output == "--tenant --\n");
  CHECK(Run({"run", "--", "/bin/echo", "--", "-x"}).output == "-- -x\n");
}

TEST_CASE("The exit code is the program's") {
  for (const std::string& mode : {std::string("--socket=/s"), std::string("--standalone=soft")}) {
    CHECK(Run({"run", mode, "--", "/bin/sh", "-c", "exit 9"}).code == 9);
    const Ran missing = Run({"run", mode, "--", "/nowhere/program"});
    CHECK(missing.code == 127);
    CHECK_THAT(missing.output, Catch::Contains("/nowhere/program"));
    CHECK(Run({"run", mode, "--", "/etc/passwd"}).code == 126);
  }
  CHECK(Run({"run", "--standalone=soft", "--", "/bin/sh", "-c", "kill -SEGV $$"}).code ==
        128 + SIGSEGV);
  CHECK(Run({"run", "--socket=/s", "--", "/bin/sh", "-c", "kill -SEGV $$"}).code == 1000 + SIGSEGV);
}

TEST_CASE("A relative socket is the same for a program that changes its directory") {
  const Ran ran =
      Run({"run", "--socket", "here/s", "--", "/bin/sh", "-c", "cd / && echo $DETSHARE_SOCKET"});
  CHECK(ran.output == std::filesystem::current_path().string() + "/here/s\n");
}

TEST_CASE("Mistakes are explained") {
  CHECK(Run({"run"}).code == 125);
  CHECK(Run({"run", "--standalone", "--socket", "/s", "--", "/bin/true"}).code == 125);
  for (const std::string option : {"--socket", "--tenant"}) {
    const Ran misplaced = Run({option, "x", "run", "--", "/bin/echo", "ran"});
    CHECK(misplaced.code == 125);
    CHECK(misplaced.output.find("detshare has no option " + option + ": put it behind run\n") == 0);
  }
  const Ran empty = Run({"run", "--tenant", "", "--", "/bin/echo", "ran"});
  CHECK(empty.code == 125);
  CHECK_THAT(empty.output, Catch::Contains("--tenant: a value is not \"\""));
  const Ran mistyped = Run({"rn", "--", "/bin/echo", "--socket"});
  CHECK(mistyped.code == 125);
  CHECK(mistyped.output.find("detshare has no command rn: did you mean run?\n") == 0);
  CHECK(Run({"--", "/bin/echo"}).output.find("detshare needs a command: run\n") == 0);
  CHECK_THAT(Run({"run", "--standalone=quantum", "--", "true"}).output, Catch::Contains("quantum"));
  const Ran apart = Run({"run", "--standalone", "soft", "--", "/bin/echo", "ran"});
  CHECK(apart.code == 125);
  CHECK(apart.output.find("detshare: write --standalone=soft, or") == 0);
  CHECK(Run({"run", "--standalone", "--", "soft"}).code == 127);
  const Ran ran = Running({"run", "--", "true"}, false).Finish();
  CHECK(ran.code == 125);
  CHECK_THAT(ran.output, Catch::Contains("DETSHARE_LIB_DIR"));
  CHECK(Run({"run", "--help"}).code == 0);
}

TEST_CASE("A private daemon lives as long as the command") {
  const Ran ran = Run({"run", "--standalone=soft", "--", "/bin/sh", "-c",
                       "test -S $DETSHARE_SOCKET && dirname $DETSHARE_SOCKET"});
  CHECK(ran.code == 0);
  REQUIRE(ran.output.size() > 2);
  CHECK_FALSE(std::filesystem::exists(ran.output.substr(0, ran.output.size() - 1)));
}

TEST_CASE("A signal to the launcher reaches the program") {
  Running running({"run", "--standalone=soft", "--", "/bin/sh", "-c",
                   "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done"});
  REQUIRE_FALSE(running.ReadUntil("ready\n").empty());
  kill(running.pid, SIGTERM);
  const Ran ran = running.Finish();
  CHECK(ran.code == 3);
  CHECK_THAT(ran.output, Catch::Contains("got it"));
}

}  // namespace
