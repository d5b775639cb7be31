// gRPC without the threads that wake up several times a second for timers that nobody has set.
//
// The channels of DetShare are connected unix sockets: there is nothing to dial again, to resolve or
// to keep alive, and no call has a deadline. So timers are off: a deadline or keepalive that is set
// all the same never comes.
#pragma once

namespace detshare {

// To be called before anything else of gRPC in the process; later calls do nothing. Any thread.
void StartQuietGrpc();

}  // namespace detshare
