package redisstore

// Tags are those of new data in so many shards.
func Tags(shards int) []string { return layout{version: newestLayout, shards: shards}.tags() }
