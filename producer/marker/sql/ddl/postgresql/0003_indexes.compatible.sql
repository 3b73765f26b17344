-- The claim's index leads with the shard. The index holds unsent messages only.
CREATE INDEX {index}_claim ON {table} (shard_id, producer, state, due_at, lock_until, id) WHERE due_at IS NOT NULL;
CREATE INDEX {index}_created ON {table} (created_at);
CREATE INDEX {index}_aggregate ON {table} (aggregate_type, aggregate_id) WHERE aggregate_type IS NOT NULL;
