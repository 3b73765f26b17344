package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one script as Redis knows it.
type script struct {
	source, sha string
	// ran gets the approximate number of messages and the duration of each run.
	ran func(messages int, took time.Duration)
	// answers says how the reply answers about messages.
	answers answering
	// joins says that one request may hold several calls; see joined.lua.
	joins bool
}

// answering is how a script's reply answers about the messages of its call.
type answering uint8

const (
	// notAtAll: the script is not about single messages.
	notAtAll answering = iota
	// byMessage: the reply begins with an answer for each message.
	byMessage
	// byProducer: the reply has an answer for each producer's messages together.
	byProducer
	// byClaim: the reply has an answer for each message that was found, of which only claims count.
	byClaim
)

// answersOf are the scripts that answer about messages.
var answersOf = map[string]answering{
	"create": byMessage, "submit": byMessage, "trust": byMessage, "move": byMessage, "moves": byMessage,
	"replay": byMessage, "point": byMessage,
	"create_paged": byProducer, "claim": byClaim,
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by it
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// together are the scripts that are put into one, whose calls are gathered; see moves.go. A call has the number of its
// script there.
var together = map[string][]string{"moves": {"submit_paged", "settle_paged"}}

// parts are the files before a script.
var parts = map[string][]string{
	"create_paged": {"cell", "paged"}, "submit_paged": {"cell", "paged"}, "settle_paged": {"cell", "paged"},
	"create": indexing(), "point": indexing(), "due": indexing(), "repair": indexing(),
	"move": indexing("timeline"), "replay": indexing("timeline"),
	"submit": indexing("timeline", "claims"), "trust": indexing("timeline", "claims"),
	"claim": {"prelude", "cell", "chains", "writes", "timeline", "claims"},
	"get":   {"prelude", "cell", "chains", "writes"}, "list": {"prelude", "cell"}, "stats": {"prelude", "cell"},
	"owners": {"prelude", "cell"}, "pulse": {"prelude"},
	"coordinators": {"prelude"}, "backlog": {"prelude"}, "attend": {"prelude"}, "bytes": {"prelude"},
	"history": {"prelude"}, "trim": {"prelude"}, "charts": {"prelude"}, "parked": {"prelude"},
}

// indexing are the parts of a script that moves messages between cells and indexes, with more parts.
func indexing(more ...string) []string {
	return append([]string{"prelude", "cell", "chains", "writes", "cells"}, more...)
}

// scripts are the files in lua/.
type scripts struct {
	createPaged, moves                                                                        *script
	create, submit, trust, move, due, claim, get, list, stats, repair, pulse, owners, backlog *script
	coordinators, attend, bytes, history, trim, replay, charts, parked, point                 *script
}

// byName are the scripts by the names of their files.
func (all *scripts) byName() map[string]**script {
	return map[string]**script{
		"create_paged": &all.createPaged, "moves": &all.moves,
		"create": &all.create, "submit": &all.submit, "trust": &all.trust, "move": &all.move,
		"due": &all.due, "claim": &all.claim, "get": &all.get, "list": &all.list,
		"stats": &all.stats, "repair": &all.repair, "pulse": &all.pulse,
		"owners": &all.owners, "backlog": &all.backlog, "coordinators": &all.coordinators,
		"attend": &all.attend, "bytes": &all.bytes,
		"history": &all.history, "trim": &all.trim, "replay": &all.replay, "charts": &all.charts,
		"parked": &all.parked, "point": &all.point,
	}
}

// loadScripts reads the scripts and loads them on every master in reach: a request to another one carries the script.
// Servers older than Redis 7, and embedded ones, do not understand the first line, the flags for short memory, so such
// servers get the scripts without that line.
func loadScripts(ctx context.Context, client redis.UniversalClient, config Config) (scripts, error) {
	flagged, err := understandsFlags(ctx, client)
	if err != nil {
		return scripts{}, err
	}
	var all scripts
	_, onCluster := client.(*cluster)
	for name, into := range all.byName() {
		kind := assembly{
			flagged: flagged, cluster: onCluster, archive: config.Archive,
			times: luaTimes{retention: config.Retention, longestWait: config.LongestWait},
		}
		if *into, err = kind.script(name); err != nil {
			return scripts{}, err
		}
		reported, _, _ := strings.Cut(name, "_") // create_paged is reported as create
		(*into).ran = func(messages int, took time.Duration) { config.Ran(reported, messages, took) }
		source := (*into).source
		load := func(ctx context.Context, master *redis.Client) error { return master.ScriptLoad(ctx, source).Err() }
		if err := eachReachable(ctx, client, load); err != nil {
			return scripts{}, fmt.Errorf("%s.lua: %w", name, err)
		}
	}
	return all, nil
}

func understandsFlags(ctx context.Context, client redis.UniversalClient) (bool, error) {
	understood := true
	err := eachReachable(ctx, client, func(ctx context.Context, master *redis.Client) error {
		err := master.ScriptLoad(ctx, "#!lua flags=allow-oom\nreturn 1").Err()
		if err != nil && redis.HasErrorPrefix(err, "Error compiling") {
			understood = false // all masters run the same scripts, so the oldest master decides
			return nil
		}
		return err
	})
	return understood, err
}

// assembly says how scripts are put together: with a line of flags, for a Cluster, with times of the configuration, and
// with the archive.
type assembly struct {
	flagged, cluster bool
	times            luaTimes
	archive          Archive
}

// script puts a script together. On a Cluster, calls for several shards of a master are joined.
func (a assembly) script(name string) (*script, error) {
	names, joins := together[name]
	if !joins {
		names, joins = []string{name}, a.cluster && answersOf[name] != notAtAll
	}
	flags, sources, err := a.sources(names)
	if err != nil {
		return nil, err
	}
	source := sources[0]
	if joins {
		if source, err = joined(sources); err != nil {
			return nil, err
		}
	}
	if joins && a.cluster {
		flags = strings.Replace(flags+",allow-cross-slot-keys", "#!lua,", "#!lua flags=", 1)
	}
	if a.flagged {
		source = flags + "\n" + source
	}
	sc := newScript(source)
	sc.answers, sc.joins = answersOf[name], joins
	return sc, nil
}

// sources are scripts with the names from keys.go, the prelude and their parts. The flags are those of the last.
func (a assembly) sources(names []string) (flags string, sources []string, err error) {
	for _, name := range names {
		own, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			return "", nil, err
		}
		var body string
		flags, body, _ = strings.Cut(string(own), "\n")
		var parted strings.Builder
		for _, part := range a.parts(name) {
			text, err := luaFiles.ReadFile("lua/" + part + ".lua")
			if err != nil {
				return "", nil, err
			}
			parted.Write(text)
		}
		parted.WriteString(body)
		source := withoutComments(parted.String())
		sources = append(sources, luaHead(source, a.times, a.archive)+source)
	}
	return flags, sources, nil
}

// parts are the files before a script. Scripts that end messages have the archive where it is on.
func (a assembly) parts(name string) []string {
	if a.archive.on() && (name == "move" || name == "settle_paged") {
		return append(slices.Clone(parts[name]), "archive")
	}
	return parts[name]
}

// joined is the script that runs the scripts for the parts of a request.
func joined(sources []string) (string, error) {
	frame, err := luaFiles.ReadFile("lua/joined.lua")
	if err != nil {
		return "", err
	}
	var functions strings.Builder
	for _, source := range sources {
		functions.WriteString("function(KEYS, ARGV)\n" + source + "\nend,\n")
	}
	return strings.Replace(withoutComments(string(frame)), "SCRIPTS", functions.String(), 1), nil
}

// withoutComments leaves out the lines of comments, whose capitals would count as names.
func withoutComments(source string) string {
	var code strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	return code.String()
}

// call is one call of a script for messages of one shard.
type call struct {
	shard string // its prefix
	args  []any
	items []int // which messages of the batch it is about, in the order of its replies
	// messages is how many messages the script works on.
	messages int
	// part is the number of the call's script where several scripts are one; see together.
	part int
	// bytes is the size of the arguments where it matters.
	bytes int
	// most is how many due times due.lua lists for a producer.
	most  int
	reply []any
	err   error
}

func newCall(shard string, room int) *call {
	return &call{shard: shard, part: 1, args: make([]any, 0, room)}
}

// answered is how many messages were answered.
func (sc *script) answered(calls []*call) (messages int) {
	for _, c := range calls {
		switch {
		case c.err != nil:
		case sc.answers == byMessage:
			messages += min(len(c.reply), c.messages)
		case sc.answers == byProducer:
			messages += c.messages
		case sc.answers == byClaim:
			messages += claimsIn(c.reply)
		}
	}
	return messages
}

// answer is the reply about the nth of the call's messages.
func (c *call) answer(n int) any {
	if n < len(c.reply) {
		return c.reply[n]
	}
	return nil
}
