#!/usr/bin/env python3
"""An order service that keeps the contract of msghandler over HTTP and JSON: PostgreSQL and what Python brings.

POST /orders takes an order such as {"id": "1001", "amount": 12}. The order's message is published if, and only if, the
order's transaction commits, whichever process dies when. The coordinator calls POST /confirm and POST /deleteBusiness.
docs/howto/python.md says how to run it, and
docs/reference/languages-contract.md what each step is for.
"""

import base64
import concurrent.futures
import contextlib
import hmac
import http.client
import http.server
import json
import logging
import os
import pathlib
import random
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import psycopg2
import psycopg2.errors
import psycopg2.extensions

PRODUCER = QUEUE = "python-http-orders"

# Outcome unknown, or not now: make the same call again, with the same content. All other codes are answers.
AGAIN = {"unavailable", "resource_exhausted", "unknown", "deadline_exceeded", "internal", "aborted", "canceled"}

VERDICTS = {2: "VERDICT_COMMITTED", 3: "VERDICT_ROLLED_BACK"}  # in the column verdict of the table
COMMITTED, ROLLED_BACK = VERDICTS.values()
UNKNOWN, UNAVAILABLE = "VERDICT_UNKNOWN", "VERDICT_UNAVAILABLE"

NOW = "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::BIGINT"  # milliseconds, by the clock of the database
WEEK = 7 * 24 * 3600 * 1000

# A network that loses all bytes must not keep threads for ever.
TIMEOUTS = {"connect_timeout": 2, "tcp_user_timeout": 8000, "keepalives_idle": 4, "keepalives_interval": 2,
            "keepalives_count": 2}


class RolledBack(Exception):
    """The message's business has not committed, and never will under this id."""


class Markers:
    """The rows of the SDK's table msghandler_markers: what became of each message (docs/reference/tables.md).

    The first insert of an id decides: its business COMMITTED, or a tombstone ROLLED_BACK.
    """

    def __init__(self, url, producer):
        self.url, self.producer = url, producer

    @contextlib.contextmanager
    def transaction(self, lock_timeout="5s"):
        """A transaction, which an error rolls back. A service under load takes its connections from a pool."""
        with contextlib.closing(psycopg2.connect(self.url, **TIMEOUTS)) as db, db, db.cursor() as tx:
            tx.execute("SET LOCAL lock_timeout = %s", (lock_timeout,))
            yield tx
            if db.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_INERROR:
                raise psycopg2.InternalError("the business has swallowed an error; its COMMIT would roll back silently")

    def mark(self, tx, message_id):
        """The first write of a business. False: a tombstone stands, or the marker of an earlier run."""
        tx.execute(f"""INSERT INTO msghandler_markers (producer, id, verdict, created_at) VALUES (%s, %s, 2, {NOW})
            ON CONFLICT DO NOTHING""", (self.producer, message_id.encode()))
        return tx.rowcount == 1

    def look(self, ids):
        """The verdicts that are committed."""
        with self.transaction() as tx:
            tx.execute("SELECT id, verdict FROM msghandler_markers WHERE producer = %s AND id = ANY(%s::BYTEA[])",
                       (self.producer, [i.encode() for i in ids]))
            return {bytes(i).decode(): VERDICTS[verdict] for i, verdict in tx}

    def settle(self, ids):
        """Plants a tombstone where there is no row: such a business can never commit. Then says what stands.

        A tombstone waits for the transaction that holds its id. An id that is held for longer gets no verdict.
        """
        try:
            self.plant(ids, "1s")
        except psycopg2.errors.LockNotAvailable:
            for i in ids:  # the others must not wait for one
                with contextlib.suppress(psycopg2.errors.LockNotAvailable):
                    self.plant([i], "10ms")
        return self.look(ids)

    def plant(self, ids, lock_timeout):
        with self.transaction(lock_timeout) as tx:  # sorted: two such inserts must not deadlock
            tx.execute(f"""INSERT INTO msghandler_markers (producer, id, verdict, created_at, cleaned_at)
                SELECT %s, id, 3, {NOW}, {NOW} FROM unnest(%s::BYTEA[]) AS id ORDER BY id ON CONFLICT DO NOTHING""",
                       (self.producer, [i.encode() for i in ids]))

    def clean(self, ids):
        """Rows stay for a week, for a coordinator that asks again; each time some that are older are removed."""
        with self.transaction() as tx:
            tx.execute(f"""UPDATE msghandler_markers SET cleaned_at = {NOW}
                WHERE producer = %s AND id = ANY(%s::BYTEA[]) AND cleaned_at IS NULL""",
                       (self.producer, [i.encode() for i in ids]))
            old = f"producer = %s AND cleaned_at < {NOW} - %s"  # twice: other partitions have rows of the same ctid
            tx.execute(f"""DELETE FROM msghandler_markers WHERE {old} AND ctid IN (SELECT ctid FROM msghandler_markers
                WHERE {old} LIMIT 1000)""", (self.producer, WEEK) * 2)


class CallError(Exception):
    """A call of the coordinator that has failed. Without a code its outcome is unknown."""

    def __init__(self, code, message):
        super().__init__(f"{code or 'no answer'}: {message}")
        self.code = code


def tokens_of(file):
    """The tokens of a file, one a line; empty lines and comments do not count."""
    lines = [line.strip() for line in pathlib.Path(file).read_text(encoding="ascii").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for the coordinator alone."""

    def redirect_request(self, *_):
        return None


class Coordinator:
    """Calls of msghandler.v1.MessageHandlerService (docs/reference/http.md), with the token of a file if there is one."""

    def __init__(self, url, token_file=None):
        to = urllib.parse.urlsplit(url)
        if token_file and to.scheme != "https" and to.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError("a token is shown over TLS only: write https:// in COORDINATOR")
        self.url, self.token_file = url, token_file
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)  # not by way of http_proxy

    def call(self, method, request, patience):
        """Makes a call, and the same call again for so many seconds while its outcome is unknown."""
        ends, pause = time.monotonic() + patience, 0.05
        while True:
            try:
                return self.post(method, request)
            except CallError as error:
                if error.code and error.code not in AGAIN or time.monotonic() + pause > ends:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, 2)

    def post(self, method, request):
        headers = {"Content-Type": "application/json", "Connect-Timeout-Ms": "5000"}
        if self.token_file:
            headers["Authorization"] = "Bearer " + tokens_of(self.token_file)[0]  # the file may change
        post = urllib.request.Request(f"{self.url}/msghandler.v1.MessageHandlerService/{method}",
                                      json.dumps(request).encode(), headers)
        try:
            with self.opener.open(post, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise refusal(error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CallError(None, error) from error


def refusal(error):
    """The CallError of an answer that is not 200: a proxy on the way may have answered, without a code."""
    try:
        answer = json.load(error)
        return CallError(answer["code"], answer.get("message"))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return CallError(None, f"status {error.code}")


class Producer:
    """Sends the messages of transactions that commit, and no others. Many threads may use it."""

    def __init__(self, coordinator, target, markers):
        self.coordinator, self.target, self.markers = coordinator, target, markers
        self.storing = set()  # ids whose half message is on its way: their business has not begun
        self.submits = concurrent.futures.ThreadPoolExecutor(8)

    def send(self, message, business):
        """Runs business(tx), unless it ran before, and sends the message if it commits. Returns what stands then.

        RolledBack means that nothing commits under this id. After any other error make the same call again.
        """
        stands = self.markers.look([message["id"]]).get(message["id"])
        if stands != ROLLED_BACK:
            state = self.store(message)
            if not stands and state != "STATE_PENDING":
                return state
        stands = stands or self.run(message["id"], business)
        if stands == COMMITTED:
            self.submits.submit(self.submit, message["id"])  # in the background: a Submit that is lost loses nothing
        return stands

    def store(self, message):
        self.storing.add(message["id"])
        try:
            return self.coordinator.call("SendHalfMessage", {
                "producer": PRODUCER, "callbackTarget": self.target, "message": message}, patience=30)["state"]
        finally:
            self.storing.discard(message["id"])

    def run(self, message_id, business):
        begun = False
        try:
            with self.markers.transaction() as tx:
                begun = self.markers.mark(tx, message_id)
                if begun:
                    business(tx)
        except Exception as error:  # one of COMMIT too, which may have committed: only the database can tell
            if not begun:
                raise  # a lock or a lost connection: nothing is decided, and the id stays usable
            stands = self.markers.settle([message_id]).get(message_id)
            if stands == ROLLED_BACK:
                self.roll_back(message_id, error)
                raise RolledBack(str(error)) from error
            if stands != COMMITTED:
                raise  # the coordinator asks later, and learns what stands by then
        return COMMITTED if begun else self.markers.look([message_id])[message_id]

    def roll_back(self, message_id, reason):
        with contextlib.suppress(CallError):  # lost, the coordinator asks and meets the tombstone
            self.coordinator.call("Rollback", {
                "producer": PRODUCER, "id": message_id, "reason": str(reason)[:1000]}, patience=3)

    def submit(self, message_id):
        try:
            self.coordinator.call("Submit", {"producer": PRODUCER, "id": message_id}, patience=1)
        except CallError as error:  # not_found, failed_precondition: look why. Others: the coordinator will ask
            logging.warning("Submit of %s: %s", message_id, error)

    def confirm(self, ids, final):
        """What stands of each message, for a coordinator: asked at any time, and about what a replica has sent."""
        storing = self.storing.copy()
        found, otherwise = {}, UNKNOWN  # no row is no verdict: it may be committed a moment later
        try:
            found = self.markers.look(ids)
            if final:
                found |= self.markers.settle([i for i in ids if i not in found and i not in storing])
        except psycopg2.Error as error:
            logging.warning("confirm: %s", error)
            otherwise = UNAVAILABLE  # it says nothing of the message, and must cost it nothing
        return [{"id": i, "verdict": found.get(i, UNAVAILABLE if i in storing else otherwise)} for i in ids]


class Handler(http.server.BaseHTTPRequestHandler):
    """The service's own POST /orders, and the callbacks. Keep the callbacks off the public network."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    producer, tokens = None, None  # set by main

    def do_POST(self):
        routes = {"/orders": self.order, "/confirm": self.confirm, "/deleteBusiness": self.delete_business}
        route = routes.get(self.path)
        if route is None:
            return self.answer(404, {"error": "there is no such path"})
        if route != self.order and not self.knows():  # first of all: a stranger's last question plants a tombstone
            return self.answer(401, {"error": "the caller shows no token of a coordinator"})
        try:
            request = self.read()
        except (ValueError, KeyError, TypeError) as error:
            return self.answer(400, {"error": str(error)})
        if request.get("producer", PRODUCER) != PRODUCER:
            return self.answer(409, {"error": f"this is the producer {PRODUCER}"})
        return route(request)

    def read(self):
        length = int(self.headers["Content-Length"])
        if not 0 <= length <= 1 << 20:
            raise ValueError("a request has up to 1 MiB")
        request = json.loads(self.rfile.read(length))
        if self.path == "/orders":
            return {"id": text(request["id"]), "amount": int(request["amount"])}
        if not isinstance(request["ids"], list) or not isinstance(request.get("final", False), bool):
            raise ValueError("ids is a list, and final is true or false")
        return {"producer": text(request["producer"]), "ids": [text(i) for i in request["ids"]],
                "final": request.get("final", False)}

    def order(self, order):
        body = json.dumps(order, sort_keys=True).encode()  # the same each time it is sent
        message = {"id": order["id"], "routingKey": QUEUE, "contentType": "application/json",
                   "body": base64.b64encode(body).decode()}
        try:
            stands = self.producer.send(message, lambda tx: tx.execute(
                "INSERT INTO orders (id, amount) VALUES (%(id)s, %(amount)s)", order))
        except RolledBack as error:
            return self.answer(422, {"stands": ROLLED_BACK, "error": str(error)})
        except (psycopg2.Error, CallError) as error:
            return self.answer(503, {"error": str(error)})  # the same order may be sent again
        committed = stands in (COMMITTED, "STATE_SENDABLE", "STATE_DONE", "STATE_DEAD")
        return self.answer(200 if committed else 409, {"stands": stands})

    def confirm(self, request):
        self.answer(200, {"confirmations": self.producer.confirm(request["ids"], request["final"])})

    def delete_business(self, request):
        try:
            self.producer.markers.clean(request["ids"])
        except psycopg2.Error as error:
            logging.warning("deleteBusiness: %s", error)
            return self.answer(503, {"error": "the database is away"})  # the coordinator tries again
        return self.answer(200, {})

    def knows(self):
        """Whether the call carries one of the tokens. The file is read each time, so that a token can be replaced."""
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        accepted = tokens_of(self.tokens)
        fits = [hmac.compare_digest(token.encode(), a.encode()) for a in accepted]  # all, however soon one fits
        return scheme.lower() == "bearer" and any(fits)

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.close_connection = self.close_connection or status != 200  # the request may not have been read
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_):
        """No line for each request."""


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # not 5, where the callers of a burst wait for seconds to connect


def text(value):
    if not isinstance(value, str):
        raise TypeError("a name or an id is a text")
    value.encode()  # an error for half a character
    return value


def main():
    logging.basicConfig()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # what has not committed by then does not
    listen = os.environ.get("LISTEN", "127.0.0.1:7001")
    markers = Markers(os.environ["DATABASE_URL"], PRODUCER)
    with markers.transaction() as tx:
        tx.execute("""CREATE TABLE IF NOT EXISTS orders (
            id TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount > 0))""")
    coordinator = Coordinator(os.environ.get("COORDINATOR", "http://127.0.0.1:9090"), os.environ.get("MSGHANDLER_TOKEN_FILE"))
    Handler.producer = Producer(coordinator, os.environ.get("CALLBACK_URL", f"http://{listen}"), markers)
    Handler.tokens = os.environ["COORDINATOR_TOKENS"]  # without it every client could have transactions rolled back
    host, _, port = listen.rpartition(":")
    server = Server((host, int(port)), Handler)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
