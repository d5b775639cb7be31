// gRPC without its timer threads, which wake up several times a second even when no timer is set.
//
// DetShare's channels are connected unix sockets. They never reconnect, resolve names or keep
// connections alive, and no call has a deadline. So timers are disabled. A deadline or keepalive
// that is set nevertheless never expires.
#pragma once

namespace detshare {

// Must be called before any other function of gRPC in the process. Later calls do nothing. Any
// thread.
void StartQuietGrpc();

}  // namespace detshare
