/* Runs a command once for each peer of a wide-area network on this machine (wan.h; as root).
 *
 *   bench_wan PEERS MBIT[/SLOW_MBIT] RTT_MS LOSS_PERCENT CONGESTION COMMAND [ARGUMENTS]
 *
 * Each runs in a namespace of its own and finds in its environment who it is: WAN_PEER (from 0), WAN_ADDRESS; peer 0 has 10.77.0.1,
 * and the device is called "wan". The last one has SLOW_MBIT. Before each line is a queue of WAN_QUEUE_KB (environment; 1 MiB
 * without it). Ends when all have ended, with 1 if one failed. */
#include "wan.h"

#include <sys/wait.h>

int main(int argc, char **argv) {
  size_t n = argc > 6 ? strtoul(argv[1], NULL, 10) : 0;
  int ends[2], failed = 0, status;
  if (n < 1 || n > WAN_PEERS_MAX) {
    fprintf(stderr, "usage: bench_wan PEERS MBIT[/SLOW_MBIT] RTT_MS LOSS_PERCENT CONGESTION COMMAND [ARGUMENTS]; 1 to 16 peers\n");
    return 2;
  }
  char *slow;
  const char *queue_kb = getenv("WAN_QUEUE_KB");
  wan_link link = {.rate = strtod(argv[2], &slow) * 125000,
                   .slow = *slow == '/' ? strtod(slow + 1, NULL) * 125000 : 0,
                   .rtt_s = strtod(argv[3], NULL) / 1000,
                   .loss = strtod(argv[4], NULL) / 100,
                   .queue = queue_kb ? strtoul(queue_kb, NULL, 10) * 1000 : 1 << 20,
                   .congestion = argv[5]};
  wan_must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "a socket");
  pid_t relay = fork(), peers[WAN_PEERS_MAX];
  if (relay == 0) {
    close(ends[1]);
    wan_relay(n, &link, ends[0], 1);
    _exit(0);
  }
  close(ends[0]);
  for (size_t i = 0; i < n; i++)
    if ((peers[i] = fork()) == 0) {
      char text[32];
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      wan_enter(i, &link, ends[1]);
      close(ends[1]);
      snprintf(text, sizeof text, "%zu", i);
      setenv("WAN_PEER", text, 1);
      wan_address(i, text);
      setenv("WAN_ADDRESS", text, 1);
      execvp(argv[6], argv + 6);
      _exit(127);
    }
  for (size_t i = 0; i < n; i++)
    failed |= waitpid(peers[i], &status, 0) != peers[i] || status != 0;
  kill(relay, SIGKILL);
  waitpid(relay, NULL, 0);
  return failed;
}
