-- The outbox of msghandler for plain SQL: one INSERT is a message. Give exchange, routing_key and body; every other column
-- has a default. All times are milliseconds since 1970, by this database's clock.
-- A column holds one character more than its rule allows, and delay_ms is a text: a session without a strict sql_mode cuts
-- and converts values before a rule is checked.
CREATE TABLE IF NOT EXISTS {table} (
  producer     VARCHAR(101) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT {producer},
  id           VARCHAR(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT (UUID())
    COMMENT 'consumers deduplicate by producer and id',
  exchange     VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  routing_key  VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  body         LONGBLOB,
  content_type VARCHAR(256) CHARACTER SET utf8mb4,
  headers      MEDIUMTEXT CHARACTER SET utf8mb4 COMMENT 'a JSON object of texts, such as {"tenant": "7"}',
  broker       VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''
    COMMENT 'a name of the configuration of the coordinator; empty: the default broker',
  delay_ms     VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '0'
    COMMENT 'published this long after created_at',
  event_type   VARCHAR(255) CHARACTER SET utf8mb4 COMMENT 'for people',
  shard_id     INT NOT NULL DEFAULT 0 COMMENT 'all shards are relayed, in turn',
  -- The columns below belong to the relay.
  state        SMALLINT NOT NULL DEFAULT 1 COMMENT '1 waiting, 3 sent, 4 failed',
  created_at   BIGINT NOT NULL DEFAULT {now_default},
  due_at       BIGINT DEFAULT {now_default} COMMENT 'when a relay may claim the row next; NULL: sent or failed',
  updated_at   BIGINT,
  sent_at      BIGINT COMMENT 'when the broker had the message',
  cleaned_at   BIGINT COMMENT 'from when the purge counts',
  owner        VARBINARY(255) COMMENT 'the claim of a relay, since lock_time and until lock_until',
  lock_time    BIGINT,
  lock_until   BIGINT,
  claims       INT NOT NULL DEFAULT 0 COMMENT 'above 1 the message may have been sent before',
  attempts     INT NOT NULL DEFAULT 0 COMMENT 'how often the message was refused',
  last_error   TEXT CHARACTER SET utf8mb4,
  -- An INSERT that breaks these rules fails: its row would never be sent, or would stop other rows.
  CONSTRAINT {index}_state CHECK (state BETWEEN 1 AND 4),
  CONSTRAINT {index}_unsent_is_due CHECK (due_at IS NOT NULL OR state >= 3),
  CONSTRAINT {index}_milliseconds CHECK (created_at BETWEEN 1000000000000 AND 9999999999999),
  CONSTRAINT {index}_counters CHECK (claims BETWEEN 0 AND 1000000000 AND attempts BETWEEN 0 AND 1000000000),
  CONSTRAINT {index}_shard CHECK (shard_id >= 0),
  CONSTRAINT {index}_producer CHECK (producer <> '' AND producer NOT REGEXP '[^A-Za-z0-9._-]' AND CHAR_LENGTH(producer) <= 100),
  CONSTRAINT {index}_id CHECK (id REGEXP '^[A-Za-z0-9]' AND id NOT REGEXP '[^A-Za-z0-9._:~-]' AND CHAR_LENGTH(id) <= 128),
  CONSTRAINT {index}_destination CHECK (exchange <> '' OR routing_key <> ''),
  CONSTRAINT {index}_exchange CHECK (OCTET_LENGTH(exchange) <= 255 AND exchange NOT REGEXP '[[:cntrl:]]'
    AND exchange NOT LIKE 'amq.%'),
  CONSTRAINT {index}_routing_key CHECK (OCTET_LENGTH(routing_key) <= 255 AND routing_key NOT REGEXP '[[:cntrl:]]'),
  CONSTRAINT {index}_content_type CHECK (OCTET_LENGTH(content_type) <= 255 AND content_type NOT REGEXP '[[:cntrl:]]'),
  CONSTRAINT {index}_broker CHECK (OCTET_LENGTH(broker) <= 255),
  -- The names: a quote within one is escaped, and MariaDB keeps the escapes of letters, which would hide a reserved name.
  -- The values are texts: without their escapes, of which 92 is the backslash, nothing else stands between the brackets, which
  -- the first and the last dot match. MySQL refuses a pattern with a bracket within brackets, and matches no binary text.
  CONSTRAINT {index}_headers CHECK (OCTET_LENGTH(headers) = 0 OR OCTET_LENGTH(headers) <= 131072 AND JSON_VALID(headers)
    AND (JSON_TYPE(headers) = 'NULL' OR JSON_TYPE(headers) = 'OBJECT'
    AND LOWER(REPLACE(JSON_KEYS(headers), CHAR(92 USING utf8mb4), '|'))
      NOT REGEXP '(^.|, )"(x-|msghandler-|b?cc")|[|]u00[2-7]'
    AND REPLACE(REPLACE(COALESCE(JSON_EXTRACT(headers, '$.*'), '[]'), REPEAT(CHAR(92 USING utf8mb4), 2), ''),
      CONCAT(CHAR(92 USING utf8mb4), '"'), '') REGEXP '^.("[^"]*"(, *)?)*.$')),
  CONSTRAINT {index}_delay CHECK (delay_ms <> '' AND delay_ms NOT REGEXP '[^0-9]' AND CAST(delay_ms AS UNSIGNED) <= 2592000000),
  PRIMARY KEY (producer, id),
  KEY {index}_claim (shard_id, producer, state, broker, due_at, lock_until, id),
  KEY {index}_unsent (producer, state, created_at),
  KEY {index}_cleaned (producer, cleaned_at)
) ENGINE=InnoDB;
