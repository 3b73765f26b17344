-- The outbox of msghandler for plain SQL: one INSERT is a message. Give exchange, routing_key and body; every other column
-- has a default. All times are milliseconds since 1970, by this database's clock.
CREATE TABLE {table} (
  producer     TEXT COLLATE "C" NOT NULL DEFAULT {producer},
  id           TEXT COLLATE "C" NOT NULL DEFAULT gen_random_uuid()::TEXT, -- consumers deduplicate by producer and id
  exchange     TEXT NOT NULL DEFAULT '',
  routing_key  TEXT NOT NULL DEFAULT '',
  body         TEXT,
  body_bytes   BYTEA,                       -- instead of body, for a body that is not text
  content_type TEXT,
  headers      TEXT,                        -- a JSON object of texts, such as {"tenant": "7"}
  broker       TEXT COLLATE "C" NOT NULL DEFAULT '', -- a name of the coordinator's configuration; empty: the default broker
  delay_ms     BIGINT NOT NULL DEFAULT 0,   -- published this long after created_at
  event_type   TEXT,                        -- for people
  shard_id     INT NOT NULL DEFAULT 0,      -- all shards are relayed, in turn
  -- The columns below belong to the relay.
  state        SMALLINT NOT NULL DEFAULT 1, -- 1 waiting, 3 sent, 4 failed
  created_at   BIGINT NOT NULL DEFAULT {now_default},
  due_at       BIGINT DEFAULT {now_default}, -- when a relay may claim the row next; NULL: sent or failed
  updated_at   BIGINT,
  sent_at      BIGINT,                      -- when the broker had the message
  cleaned_at   BIGINT,                      -- from when the purge counts
  owner        TEXT,                        -- the claim of a relay, since lock_time and until lock_until
  lock_time    BIGINT,
  lock_until   BIGINT,
  claims       INT NOT NULL DEFAULT 0,      -- above 1 the message may have been sent before
  attempts     INT NOT NULL DEFAULT 0,      -- how often the message was refused
  last_error   TEXT,
  -- An INSERT that breaks these rules fails: its row would never be sent, or would stop other rows.
  CONSTRAINT {index}_state CHECK (state BETWEEN 1 AND 4),
  CONSTRAINT {index}_unsent_is_due CHECK (due_at IS NOT NULL OR state >= 3),
  CONSTRAINT {index}_milliseconds CHECK (created_at BETWEEN 1000000000000 AND 9999999999999),
  CONSTRAINT {index}_counters CHECK (claims BETWEEN 0 AND 1000000000 AND attempts BETWEEN 0 AND 1000000000),
  CONSTRAINT {index}_shard CHECK (shard_id >= 0),
  CONSTRAINT {index}_producer CHECK (producer ~ '^[A-Za-z0-9._-]{1,100}$'),
  CONSTRAINT {index}_id CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$'),
  CONSTRAINT {index}_destination CHECK (exchange <> '' OR routing_key <> ''),
  CONSTRAINT {index}_exchange CHECK (OCTET_LENGTH(exchange) <= 255 AND exchange !~ '[[:cntrl:]]' AND exchange NOT LIKE 'amq.%'),
  CONSTRAINT {index}_routing_key CHECK (OCTET_LENGTH(routing_key) <= 255 AND routing_key !~ '[[:cntrl:]]'),
  CONSTRAINT {index}_content_type CHECK (OCTET_LENGTH(content_type) <= 255 AND content_type !~ '[[:cntrl:]]'),
  CONSTRAINT {index}_broker CHECK (OCTET_LENGTH(broker) <= 255),
  CONSTRAINT {index}_headers CHECK (CASE WHEN headers <> '' THEN OCTET_LENGTH(headers) <= 131072
    AND jsonb_typeof(headers::JSONB) IN ('object', 'null')
    AND NOT jsonb_path_exists(headers::JSONB, 'strict $.* ? (@.type() != "string")', silent => TRUE)
    AND NOT jsonb_path_exists(headers::JSONB, 'strict $.keyvalue().key ? (@ like_regex "^(x-|msghandler-|b?cc$)" flag "i")',
      silent => TRUE)
    ELSE TRUE END),
  CONSTRAINT {index}_delay CHECK (delay_ms BETWEEN 0 AND 2592000000),
  PRIMARY KEY (producer, id)
);
-- These indexes hold unsent messages only, so sent rows cost a relay nothing.
CREATE INDEX {index}_claim ON {table} (shard_id, producer, state, broker, due_at, lock_until, id) WHERE due_at IS NOT NULL;
CREATE INDEX {index}_unsent ON {table} (producer, state, created_at) WHERE state <> 3;
CREATE INDEX {index}_cleaned ON {table} (producer, cleaned_at) WHERE cleaned_at IS NOT NULL;
-- Wakes the relays at the commit of an INSERT, once for each transaction. Without the trigger relays poll.
CREATE OR REPLACE FUNCTION {table}_notify() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('{index}', ''); RETURN NULL; END $$;
CREATE TRIGGER {index}_notify AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {table}_notify();
