-- What the message was, for people who read the inbox. Rows that an older version wrote have NULL there.
ALTER TABLE {table} ADD COLUMN routing_key TEXT;
ALTER TABLE {table} ADD COLUMN event_type TEXT;
