-- Business markers and the local message table of msghandler's producers. All times are milliseconds since 1970, by this
-- database's clock.
CREATE TABLE msghandler_markers (
  producer     TEXT COLLATE "C" NOT NULL,
  id           BYTEA NOT NULL,
  verdict      SMALLINT NOT NULL,           -- 2 committed, 3 rolled back: a tombstone
  created_at   BIGINT NOT NULL,
  cleaned_at   BIGINT,                      -- since when nobody asks any more; the purge takes it from here
  state        SMALLINT NOT NULL DEFAULT 0, -- of the message: 0 none, 1 waiting, 2 handed over, 3 sent, 4 failed
  due_at       BIGINT,                      -- when a relay is to send it; while it has an owner: until when it is locked
  owner        TEXT,                        -- the claim that a relay holds it by
  claims       INT NOT NULL DEFAULT 0,      -- how often it was claimed: above 1 it may have been sent before
  attempts     INT NOT NULL DEFAULT 0,      -- how often it was refused
  last_error   TEXT,
  message      TEXT,                        -- what is to be sent, as JSON, but for its body
  body         BYTEA
);
ALTER TABLE msghandler_markers ADD PRIMARY KEY (producer, id);
CREATE INDEX msghandler_markers_due ON msghandler_markers (producer, state, due_at);
CREATE INDEX msghandler_markers_cleaned ON msghandler_markers (producer, cleaned_at) WHERE cleaned_at IS NOT NULL;
