// Package redis keeps half messages in Redis: one server, Sentinel or Cluster, with every move one atomic script.
//
// Each key is described in docs/reference/redis.md and named in keys.go. The scripts in lua/ take many messages in one
// call and answer for each; a call to the store is one pipeline with a script call for each shard that it touches. The
// scripts hold no names of states: the names and the transitions come from the table in package halfmsg.
package redis
