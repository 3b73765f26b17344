"""examples/python/producer.py made wrong: each BUG in turn serves at two ports, as two replicas on one database.

For each bug it prints the name and both ports. TestPlantedBugsInPythonAreFound runs verify-producer against them.
"""

import argparse
import concurrent.futures
import os
import sqlite3
import sys
import threading
import time
import types

import grpc

from msghandler.v1 import msghandler_pb2 as pb
from msghandler.v1 import msghandler_pb2_grpc as rpc

import producer

UNKNOWN, COMMITTED, ROLLED_BACK = pb.VERDICT_UNKNOWN, pb.VERDICT_COMMITTED, pb.VERDICT_ROLLED_BACK


class WrongMarkers(producer.Markers):
    """The markers with a bug in what they keep."""

    def __init__(self, path, bug):
        super().__init__(path)
        self.bug, self.memory, self.planted = bug, {}, {}

    def key(self, message_id):
        return {"lowers-ids": message_id.lower(), "cuts-ids": message_id[:64]}.get(self.bug, message_id)

    def look(self, ids):
        if not ids:
            return {}
        found = super().look([self.key(i) for i in ids]) | self.memory
        if self.bug == "lagging-replica":  # it has no row of the last minute
            found = {i: v for i, v in found.items() if time.monotonic() - self.planted.get(i, -3600) > 60}
        return {i: found[self.key(i)] for i in ids if self.key(i) in found}

    def settle(self, ids):
        told = {i: ROLLED_BACK for i in ids}
        if self.bug == "final-without-tombstone":
            return told
        if self.bug in ("tombstone-in-memory", "replica-with-memory"):
            self.memory |= told
            return told
        self.planted |= {self.key(i): time.monotonic() for i in ids}
        super().settle([self.key(i) for i in ids])
        return told

    def clean(self, ids):
        if self.bug == "deletes-hard":
            with self.transaction() as tx:
                tx.executemany("DELETE FROM markers WHERE id = ?", [(i,) for i in ids])
        elif self.bug == "deleting-unknown-fails" and len(self.look(ids)) < len(ids):
            raise KeyError("no such order")
        else:
            super().clean(ids)


class WrongAnswers(producer.Answers):
    """The answers with a bug."""

    def __init__(self, shop, tokens, bug):
        super().__init__(shop, tokens)
        self.bug, self.turn = bug, threading.Lock()

    def knows(self, context):
        return self.bug == "lets-anyone-in" or super().knows(context)

    def check(self, request, context):
        if self.bug == "answers-for-others":
            request.producer = self.producer.name
        super().check(request, context)

    def Confirm(self, request, context):
        self.check(request, context)
        ids = list(request.ids)
        if self.bug == "nothing-panics":
            ids[0]
        if self.bug == "full-batch-fails" and len(ids) > 200:
            raise sqlite3.OperationalError("too many SQL variables")
        if self.bug == "query-for-each-id":
            time.sleep(0.0025 * len(ids))
        if self.bug == "one-question-at-a-time" and len(ids) == 50:
            with self.turn:
                time.sleep(0.7)
        if self.bug == "only-the-first-id":
            ids = ids[:1]
        verdicts = self.verdicts(ids, request.final, context)
        if self.bug == "verdicts-by-place":  # the rows come first
            verdicts.sort(key=lambda v: v == UNKNOWN)
        all_verdicts = list(zip(ids, verdicts))
        if self.bug == "several-verdicts":
            all_verdicts += [(i, pb.VERDICT_UNAVAILABLE) for i in ids]
        return pb.ConfirmResponse(confirmations=[pb.Confirmation(id=i, verdict=v) for i, v in all_verdicts])

    def verdicts(self, ids, final, context):
        """The verdict of each id."""
        try:
            found = self.markers.look(ids)
            if found and self.bug == "final-only-once" and final and ROLLED_BACK in found.values():
                raise sqlite3.IntegrityError("UNIQUE constraint failed: markers.id")
            if self.bug == "tombstone-stays-locked" and self.markers.planted.keys() & set(ids):
                while context.is_active():  # the transaction of the tombstone was never committed
                    time.sleep(0.05)
            if final and self.bug != "ignores-final":
                found |= self.markers.settle([i for i in ids if i not in found])
        except sqlite3.OperationalError:
            return [{"database-away-is-rolled-back": ROLLED_BACK, "database-away-is-unknown": UNKNOWN}.get(
                self.bug, pb.VERDICT_UNAVAILABLE)] * len(ids)
        if self.bug == "committed-while-running":
            found |= {i: COMMITTED for i in ids if i == "1003"}  # a marker in memory, before COMMIT
        if self.bug == "marker-read-once":
            with self.markers.transaction() as tx:
                tx.executemany("DELETE FROM markers WHERE id = ? AND verdict = ?", [(i, COMMITTED) for i in ids])
        if self.bug == "unknown-is-an-error" and len(found) < len(ids):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such order")
        otherwise = {"no-row-is-rolled-back": ROLLED_BACK, "commits-unknown": COMMITTED}.get(self.bug, UNKNOWN)
        return [found.get(i, otherwise) for i in ids]


def serve(directory, tokens, bug):
    """One replica; returns its port."""
    markers = WrongMarkers(os.path.join(directory, bug + ".db"), bug)
    with markers.transaction() as tx:
        tx.executemany("INSERT INTO markers (id, verdict) VALUES (?, ?) ON CONFLICT DO NOTHING",
                       [("1001", COMMITTED), ("1002", ROLLED_BACK), ("0999", COMMITTED)])
        if bug == "deleted-is-rolled-back":  # DeleteBusiness has removed the row
            tx.execute("DELETE FROM markers WHERE id = '0999'")
    if bug.startswith("database-away"):
        markers.path = os.path.join(directory, "away", bug + ".db")
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    shop = types.SimpleNamespace(name="orders", markers=markers, storing=set())
    rpc.add_ProducerServiceServicer_to_server(WrongAnswers(shop, tokens, bug), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--directory")
    flags.add_argument("--tokens")
    flags.add_argument("bugs", nargs="+")
    args = flags.parse_args()
    servers = []
    for bug in args.bugs:
        (first, a), (second, b) = (serve(args.directory, args.tokens, bug) for _ in range(2))
        servers += [first, second]
        print(bug, a, b, flush=True)
    sys.stdin.read()  # until the test ends


if __name__ == "__main__":
    main()
