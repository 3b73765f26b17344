#!/usr/bin/env python3
"""A consumer whose effect happens once for each message: RabbitMQ (pika) and PostgreSQL (psycopg2).

It adds the amount of each order to the table payments. The inbox, a row for each message, is written in the transaction
of the effect. So a copy finds the row of the message that came first, and changes nothing, whichever process dies when.
docs/howto/python.md says how to run it.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import time

import pika
import pika.exceptions
import psycopg2
import psycopg2.extensions

CONSUMER = "python-payments"
QUEUE, DEAD = "python-payments", "python-payments.dead"

NOW = "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::BIGINT"  # milliseconds, by the clock of the database
MONTH = 30 * 24 * 3600 * 1000


class Inbox:
    """The rows of the SDK's table msghandler_inbox: the messages whose effect has committed (docs/reference/tables.md)."""

    def __init__(self, db, consumer):
        self.db, self.consumer = db, consumer

    def once(self, message, routing_key, effect):
        """Runs effect(tx) in the transaction of the message's row. False: it has committed before."""
        with self.db, self.db.cursor() as tx:
            # It waits for a transaction that has written the row. The message's copy then does nothing.
            tx.execute(f"""INSERT INTO msghandler_inbox (consumer, message, routing_key, created_at)
                VALUES (%s, %s, %s, {NOW}) ON CONFLICT DO NOTHING""", (self.consumer, message.encode(), routing_key))
            if tx.rowcount == 0:
                return False
            effect(tx)
            if self.db.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_INERROR:
                raise psycopg2.InternalError("the effect has swallowed an error; its COMMIT would roll back silently")
        return True

    def purge(self):
        """Forgets what is older than any copy: than the time that queues and replays of dead letters keep messages."""
        with self.db, self.db.cursor() as tx:
            tx.execute(f"DELETE FROM msghandler_inbox WHERE consumer = %s AND created_at < {NOW} - %s",
                       (self.consumer, MONTH))


def pay(tx, order):
    tx.execute("INSERT INTO payments (order_id, amount) VALUES (%s, %s)", (order["id"], order["amount"]))


def consume(channel, inbox):
    """Takes messages until a connection is lost. What was not acknowledged comes again, from the broker."""
    channel.basic_qos(prefetch_count=20)
    for delivery, properties, body in channel.consume(QUEUE):
        message = f"{properties.app_id}/{properties.message_id}"  # PRODUCER/ID: an id is its producer's own
        try:
            if not properties.app_id or not properties.message_id:
                raise ValueError("without an id it cannot be told from its copies")
            order = json.loads(body)
            first = inbox.once(message, delivery.routing_key, lambda tx: pay(tx, order))
            logging.info("%s %s", message, "paid" if first else "paid before, copy ignored")
        except (ValueError, KeyError, TypeError, psycopg2.DataError, psycopg2.IntegrityError) as error:
            logging.warning("%s is rejected: %s", message, error)  # another try gives the same
            channel.basic_reject(delivery.delivery_tag, requeue=False)  # to the queue of dead letters
        else:
            channel.basic_ack(delivery.delivery_tag)  # only behind the COMMIT


def run(database, broker):
    # The database first: while it is away no message is taken, and none uses up a limit of deliveries.
    with contextlib.closing(psycopg2.connect(database, connect_timeout=5)) as db, \
            contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker))) as connection:
        with db, db.cursor() as tx:
            tx.execute("""CREATE TABLE IF NOT EXISTS payments (
                order_id TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount > 0))""")
        channel = connection.channel()
        channel.queue_declare(DEAD, durable=True)
        channel.queue_declare(QUEUE, durable=True, arguments={
            "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD})
        inbox = Inbox(db, CONSUMER)
        inbox.purge()
        print("ready", flush=True)
        consume(channel, inbox)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # what has not committed by then comes again
    while True:
        try:
            run(os.environ["DATABASE_URL"], os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/"))
        except (psycopg2.Error, pika.exceptions.AMQPError, OSError) as error:
            logging.warning("again in a second: %s", error or type(error).__name__)
            time.sleep(1)


if __name__ == "__main__":
    main()
