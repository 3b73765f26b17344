#!/usr/bin/env python3
"""An order service that keeps the contract of msghandler without an SDK: grpc, SQLite and what Python brings.

It takes orders, one JSON object a line such as {"id": "1001", "amount": 12}, each in a transaction of its own. The
order's message is published if, and only if, that transaction commits, whichever process dies when.
docs/howto/python.md says how to run it, and
docs/reference/languages-contract.md what each step is for.
"""

import argparse
import concurrent.futures
import contextlib
import fileinput
import hmac
import json
import logging
import random
import signal
import sqlite3
import sys
import time

import grpc

from msghandler.v1 import msghandler_pb2 as pb
from msghandler.v1 import msghandler_pb2_grpc as rpc

# Outcome unknown, or not now: make the same call again, with the same content. All other codes are answers.
AGAIN = {getattr(grpc.StatusCode, code) for code in (
    "UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "CANCELLED")}

CHANNEL = {
    "grpc.service_config": '{"loadBalancingConfig": [{"round_robin": {}}]}',  # over all coordinators behind a name
    "grpc.max_reconnect_backoff_ms": 2_000,  # not two minutes: a coordinator that is back is to be used
    "grpc.keepalive_time_ms": 30_000,  # finds a connection that is dead; more than one in 10 s is too much
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.enable_http_proxy": 0,
}


class Markers:
    """What became of each message: a row in the database of the business, written by the business's transaction.

    The first insert of an id decides: its business COMMITTED, or a tombstone ROLLED_BACK.
    """

    def __init__(self, path):
        self.path = path
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")  # readers do not wait for writers
            db.executescript("""
                CREATE TABLE IF NOT EXISTS markers (id TEXT PRIMARY KEY, verdict INTEGER NOT NULL, cleaned_at REAL);
                CREATE INDEX IF NOT EXISTS markers_cleaned ON markers (cleaned_at) WHERE cleaned_at IS NOT NULL;""")

    @contextlib.contextmanager
    def transaction(self, wait=1):
        """One that writes. SQLite has one at a time: this one waits so many seconds for the one before it."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=wait, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")  # what does not get here is rolled back as db is closed

    def mark(self, tx, message_id):
        """The first write of a business. False: a tombstone stands, or the marker of an earlier run."""
        return tx.execute("INSERT INTO markers (id, verdict) VALUES (?, ?) ON CONFLICT DO NOTHING",
                          (message_id, pb.VERDICT_COMMITTED)).rowcount == 1

    def look(self, ids):
        """The verdicts that are committed."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=1)) as db:
            return dict(db.execute(f"SELECT id, verdict FROM markers WHERE id IN ({','.join('?' * len(ids))})", ids))

    def settle(self, ids):
        """Plants a tombstone where there is no row: such a business can never commit. Then says what stands."""
        with self.transaction() as tx:
            tx.executemany("INSERT INTO markers VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                           [(i, pb.VERDICT_ROLLED_BACK, time.time()) for i in ids])
        return self.look(ids)

    def clean(self, ids):
        """Rows stay for a week, for a coordinator that asks again; each time some that are older are removed."""
        with self.transaction() as tx:
            tx.executemany("UPDATE markers SET cleaned_at = ? WHERE id = ? AND cleaned_at IS NULL",
                           [(time.time(), i) for i in ids])
            tx.execute("DELETE FROM markers WHERE id IN (SELECT id FROM markers WHERE cleaned_at < ? LIMIT 1000)",
                       (time.time() - 7 * 24 * 3600,))


class Answers(rpc.ProducerServiceServicer):
    """What the coordinator asks: at any time, more than once, and about what another replica has sent."""

    def __init__(self, producer, tokens):
        self.producer, self.markers = producer, producer.markers
        self.tokens = tokens  # a file that holds those of the coordinators, one a line

    def Confirm(self, request, context):
        self.check(request, context)
        storing = self.producer.storing.copy()
        found, otherwise = {}, pb.VERDICT_UNKNOWN  # no row is no verdict: it may be committed a moment later
        try:
            found = self.markers.look(request.ids)
            if request.final:
                found |= self.markers.settle([i for i in request.ids if i not in found and i not in storing])
        except sqlite3.Error as error:
            logging.warning("Confirm: %s", error)
            otherwise = pb.VERDICT_UNAVAILABLE  # it says nothing of the message, and must cost it nothing
        return pb.ConfirmResponse(confirmations=[pb.Confirmation(
            id=i, verdict=found.get(i, pb.VERDICT_UNAVAILABLE if i in storing else otherwise)) for i in request.ids])

    def DeleteBusiness(self, request, context):
        self.check(request, context)
        try:
            self.markers.clean(request.ids)
        except sqlite3.Error as error:
            logging.warning("DeleteBusiness: %s", error)
            context.abort(grpc.StatusCode.UNAVAILABLE, "the database is away")  # the coordinator tries again
        return pb.DeleteBusinessResponse()

    def check(self, request, context):
        if not self.knows(context):  # first of all: a stranger's last question plants a tombstone
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the caller shows no token of a coordinator")
        if request.producer != self.producer.name:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this is the producer {self.producer.name}")

    def knows(self, context):
        """Whether the call carries one of the tokens. The file is read each time, so that a token can be replaced."""
        shown = [v.partition(" ") for k, v in context.invocation_metadata() if k == "authorization"]
        with open(self.tokens, encoding="ascii") as file:
            accepted = [line.strip() for line in file if line.strip() and not line.startswith("#")]
        return any([hmac.compare_digest(token.encode(), a.encode())  # a list: all are compared, however soon one fits
                    for scheme, _, token in shown if scheme.lower() == "bearer" for a in accepted])


class Producer:
    """Sends the messages of transactions that commit, and no others. Many threads may use it."""

    def __init__(self, name, coordinator, target, markers):
        self.name, self.target, self.markers = name, target, markers
        self.api = rpc.MessageHandlerServiceStub(grpc.insecure_channel(coordinator, list(CHANNEL.items())))
        self.storing = set()  # ids whose half message is on its way: their business has not begun
        self.submits = concurrent.futures.ThreadPoolExecutor(8)

    def send(self, message, business):
        """Runs business(tx), unless it ran before, and sends the message if it commits. Returns what stands then.

        An error means that nothing has committed, or that the outcome is unknown; then the same call may be made again.
        """
        verdict = self.markers.look([message.id]).get(message.id)
        if verdict != pb.VERDICT_ROLLED_BACK:
            state = self.store(message)
            if verdict is None and state != pb.STATE_PENDING:
                return pb.State.Name(state)
        verdict = verdict or self.run(message.id, business)
        if verdict == pb.VERDICT_COMMITTED:
            self.submits.submit(self.submit, message.id)  # in the background: a Submit that is lost loses nothing
        return pb.Verdict.Name(verdict)

    def store(self, message):
        self.storing.add(message.id)
        try:
            return self.call(self.api.SendHalfMessage, pb.SendHalfMessageRequest(
                producer=self.name, callback_target=self.target, message=message), patience=30).state
        finally:
            self.storing.discard(message.id)

    def run(self, message_id, business):
        begun = False
        try:
            with self.markers.transaction(wait=5) as tx:
                begun = self.markers.mark(tx, message_id)
                if begun:
                    business(tx)
        except Exception as error:  # one of COMMIT too, which may have committed: only the database can tell
            if not begun:
                raise  # a lock, say: nothing is decided, and the id stays usable
            if self.markers.settle([message_id])[message_id] == pb.VERDICT_COMMITTED:
                return pb.VERDICT_COMMITTED
            with contextlib.suppress(grpc.RpcError):  # lost, the coordinator asks and meets the tombstone
                self.call(self.api.Rollback, pb.RollbackRequest(
                    producer=self.name, id=message_id, reason=str(error)[:1000]), patience=3)
            raise
        return pb.VERDICT_COMMITTED if begun else self.markers.look([message_id])[message_id]

    def submit(self, message_id):
        try:
            self.call(self.api.Submit, pb.SubmitRequest(producer=self.name, id=message_id), patience=1)
        except grpc.RpcError as error:  # NOT_FOUND, FAILED_PRECONDITION: look why. Others: the coordinator will ask
            logging.warning("Submit of %s: %s: %s", message_id, error.code().name, error.details())

    def call(self, method, request, patience):
        ends, pause = time.monotonic() + patience, 0.05
        while True:
            try:
                return method(request, timeout=5)  # who has not answered by then is not there
            except grpc.RpcError as error:
                if error.code() not in AGAIN or time.monotonic() + pause > ends:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, 2)


def main():
    flags = argparse.ArgumentParser(description="Take orders, and publish each that commits.")
    flags.add_argument("--coordinator", default="127.0.0.1:9090", help="HOST:PORT, or dns:///NAME:PORT")
    flags.add_argument("--listen", default="127.0.0.1:7001", help="where the coordinator calls back")
    flags.add_argument("--target", help="the same as the coordinator sees it; default: --listen")
    flags.add_argument("--coordinator-tokens", metavar="FILE", required=True, help="answer callers with a token of this file")
    flags.add_argument("--database", default="orders.db", help="a file of SQLite")
    flags.add_argument("--queue", default="python-orders", help="the queue that the orders go to")
    flags.add_argument("orders", nargs="*", help="files of orders; default: standard input")
    args = flags.parse_args()
    logging.basicConfig()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # what has not committed by then does not

    markers = Markers(args.database)
    with markers.transaction(wait=5) as tx:
        tx.execute("""CREATE TABLE IF NOT EXISTS orders (
            id TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount > 0))""")
    producer = Producer("python-orders", args.coordinator, args.target or args.listen, markers)
    # Without so_reuseport = 0 a second process on this port would quietly get half of the questions.
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    rpc.add_ProducerServiceServicer_to_server(Answers(producer, args.coordinator_tokens), server)
    server.add_insecure_port(args.listen)
    server.start()  # before the first half message: the coordinator may ask at once
    print("ready", flush=True)
    try:
        for line in fileinput.input(args.orders):
            order = json.loads(line)
            message = pb.Message(id=order["id"], routing_key=args.queue, content_type="application/json",
                                 body=json.dumps(order, sort_keys=True).encode())  # the same each time it is sent
            try:
                stands = producer.send(message, lambda tx: tx.execute(
                    "INSERT INTO orders (id, amount) VALUES (:id, :amount)", order))
            except (sqlite3.Error, grpc.RpcError) as error:
                stands = f"failed: {error.details() if isinstance(error, grpc.RpcError) else error}"
            print(order["id"], stands, flush=True)
        signal.pause()  # a service goes on answering until it is stopped
    finally:
        producer.submits.shutdown()
        server.stop(grace=5).wait()


if __name__ == "__main__":
    main()
