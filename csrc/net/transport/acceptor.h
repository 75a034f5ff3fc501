/* gRPC's external acceptor: how a server takes a connection that somebody else accepted.
 *
 * Room: net. Used by grpc. The C core has it as an argument of the server and one virtual call; acceptor.cpp makes that call.
 * Thread: any; one at a time.
 */
#ifndef HV_NET_ACCEPTOR_H
#define HV_NET_ACCEPTOR_H

/* The name under which a server has its acceptor: an argument of the server (a pointer to a pointer, which
 * grpc_server_add_http2_port sets), and that port's address. */
#define HV_ACCEPTOR_NAME "external:hivemind_c"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives a connected, non-blocking socket to the server, which closes it. The server must have been started, and not been stopped.
 */
void hv_acceptor_take(void *acceptor, int fd);

#ifdef __cplusplus
}
#endif

#endif
