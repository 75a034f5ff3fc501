"""A gateway of the tests' own: it speaks NAT-PMP and UPnP, rightly or wrongly, and maps ports with nft.

python gateway.py INNER OUTER MODE; each request that it serves is a line on stdout.
MODE is natpmp, upnp, or one of LIES.
"""

import re
import socket
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: a lying gateway names a private address, none, a port that leads nowhere, another protocol; or never answers
LIES = "private", "zero", "port", "protocol", "silent", "foreign", "garbage"

SERVICE = "urn:schemas-upnp-org:service:WANIPConnection:1"
DEVICE = """<?xml version="1.0"?><root xmlns="urn:schemas-upnp-org:device-1-0"><device>
<deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType><deviceList><device>
<deviceType>urn:schemas-upnp-org:device:WANDevice:1</deviceType><deviceList><device>
<deviceType>urn:schemas-upnp-org:device:WANConnectionDevice:1</deviceType><serviceList><service>
<serviceType>{service}</serviceType><controlURL>{control}</controlURL><eventSubURL>/e</eventSubURL><SCPDURL>/s</SCPDURL>
</service></serviceList></device></deviceList></device></deviceList></device></root>"""


def say(*words):
    print(*words, flush=True)


def nft(rule):
    subprocess.run(["nft", *rule.split()], check=True)


class Gateway:
    """The mappings, whichever protocol asks for them."""

    def __init__(self, inner, outer, mode):
        self.inner, self.outer, self.mode = inner, outer, mode

    def open(self, host, port, wanted, lease):
        say("open", host, port, wanted, lease)
        nft("flush chain ip gateway in")
        if self.mode not in LIES:
            nft(f"add rule ip gateway in ip daddr {self.outer} tcp dport {wanted} dnat to {host}:{port}")

    def close(self, port):
        say("close", port)
        nft("flush chain ip gateway in")

    def named(self):
        """The outer address that it claims to have."""
        return {"private": "192.168.99.1", "zero": "0.0.0.0"}.get(self.mode, self.outer)


def serve_natpmp(gateway):
    mapped = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((gateway.inner, 5351))
        while True:
            data, source = sock.recvfrom(64)
            if gateway.mode == "silent" or gateway.mode == "upnp":
                continue
            if gateway.mode == "garbage":
                sock.sendto(b"\x00\xff" + bytes(30), source)
                continue
            seconds = int(time.monotonic())
            if data[1] == 0:
                sock.sendto(struct.pack("!BBHI4s", 0, 128, 0, seconds, socket.inet_aton(gateway.named())), source)
                continue
            _, op, _, port, wanted, lease = struct.unpack("!BBHHHI", data[:12])
            if lease:
                gateway.open(source[0], port, wanted or port, lease)
                mapped[port] = wanted or port
            else:
                gateway.close(mapped.pop(port, 0))
            answer_op = 129 if gateway.mode == "protocol" else 128 + op
            outer = (wanted + 7) % 65536 if gateway.mode == "port" else mapped.get(port, 0)
            granted = min(lease, 4)
            sock.sendto(struct.pack("!BBHIHHI", 0, answer_op, 0, seconds, port, outer, granted), source)


def serve_ssdp(gateway):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", 1900))
        group = socket.inet_aton("239.255.255.250") + socket.inet_aton(gateway.inner)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        while True:
            data, source = sock.recvfrom(2048)
            kind = re.search(rb"ST: *(\S+)", data)
            if gateway.mode in ("upnp", "foreign", "private") and kind:
                host = "203.0.113.2" if gateway.mode == "foreign" else gateway.inner
                place = f"LOCATION: http://{host}:5000/d"
                lines = "HTTP/1.1 200 OK", f"ST: {kind[1].decode()}", "USN: uuid:1", place, "", ""
                sock.sendto("\r\n".join(lines).encode(), source)


def handler(gateway):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

        def answer(self, body):
            self.send_response(200)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self):
            self.answer(DEVICE.format(service=SERVICE, control=f"http://{gateway.inner}:5000/c"))

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            action = self.headers["SOAPAction"].strip('"').split("#")[1]
            field = lambda name: re.search(f"<{name}>([^<]*)<", body)[1]  # noqa: E731
            inside = ""
            if action == "AddPortMapping":
                outer, port = int(field("NewExternalPort")), int(field("NewInternalPort"))
                gateway.open(field("NewInternalClient"), port, outer, int(field("NewLeaseDuration")))
            elif action == "DeletePortMapping":
                gateway.close(int(field("NewExternalPort")))
            elif action == "GetExternalIPAddress":
                inside = f"<NewExternalIPAddress>{gateway.named()}</NewExternalIPAddress>"
            self.answer(
                '<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
                f'<u:{action}Response xmlns:u="{SERVICE}">{inside}</u:{action}Response></s:Body></s:Envelope>'
            )

    return Handler


def main(inner, outer, mode):
    gateway = Gateway(inner, outer, mode)
    web = ThreadingHTTPServer((inner, 5000), handler(gateway))
    for serve in (lambda: serve_natpmp(gateway), lambda: serve_ssdp(gateway), web.serve_forever):
        threading.Thread(target=serve, daemon=True).start()
    say("ready")
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
