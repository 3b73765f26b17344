package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/network"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Config is the place and the settings of the data.
type Config struct {
	// URL is the address of a server, a Cluster or Sentinels, in the form of address.ParseRedis. Required.
	URL string
	// Prefix begins the name of every key: letters, digits and ._:- only. Required.
	Prefix string
	// Shards is how many parts the data is in, each on one node of a Cluster. The number cannot change while there are
	// data. Defaults to the number of the existing data; new data are in 16 shards on a Cluster and in a single shard
	// elsewhere, where more shards only cost calls. At most 1024.
	Shards int
	// Instance names this process in tokens, for operators. Defaults to the host's name.
	Instance string
	// Retention is how long the receipt of a finished message is kept. Required.
	Retention time.Duration
	// LongestWait is the longest backoff or lease that the settings give a message. The sweeper repairs due times that are
	// later, and later than the message itself asks for: Redis's clock has jumped. Parked messages wait for ten minutes.
	LongestWait time.Duration
	// Archive keeps finished messages with their content. Off by default.
	Archive Archive
	// MinReplicas is how many replicas must have a new message before Create succeeds. Defaults to none.
	MinReplicas int
	// Quota is how many unfinished messages a producer may have now, 0 for no limit; of more, Create gets
	// halfmsg.ErrOverQuota. The script that stores a message counts, so the limit holds for all coordinators together.
	// Each shard counts its own part, so with several shards the limit is approximate. Defaults to no limit.
	Quota func(producer string) int
	// HeldPerKey is how many unfinished messages an ordering key may have, 0 for no limit; of more, Create gets
	// halfmsg.ErrKeyHeld.
	HeldPerKey int
	// Brokers are the names of the brokers beside the default one.
	Brokers []string
	// indexed stores new messages in the indexes at once, as tests of the indexes need it.
	indexed bool
	// Ran gets each run of a script: the approximate number of messages, 0 where a script is not about messages, and the
	// duration for all shards together. Ran must not block. May be nil.
	Ran func(script string, messages int, took time.Duration)
	// Present is the address of now, whose users and passwords each connection uses: a password may have been rotated
	// since the start. Nil: that of the URL.
	Present func() address.Redis
	// Dial connects to a server without TLS. Nil: over the machine's network.
	Dial network.Dialer
	// Handshake gets the result of each handshake of TLS with a server, or the error with which no connection came about.
	// Handshake must not block. May be nil.
	Handshake Handshakes
	// Logger gets repairs and messages set aside. Defaults to slog.Default.
	Logger *slog.Logger
}

const (
	// maxShards bounds the cost of an idle pass, which is a call for each shard.
	maxShards = 1024
	// shardsOnCluster is enough for new data to be spread evenly over a few nodes.
	shardsOnCluster = 16
)

// Store implements halfmsg's Intake, ConfirmStore, SendStore and Inspector. Store is safe for concurrent use.
type Store struct {
	config Config
	layout layout
	// installation is the ID of the data, the same for all coordinators and starts on them.
	installation string
	keys         keys
	scripts      scripts
	logger       *slog.Logger
	// intake serves producers and operators, loops the coordinator's own work: neither pool can starve the other.
	intake redis.UniversalClient
	loops  redis.UniversalClient
	// probe sends PINGs alone: a PING that waits for a connection of a full pool would look like a silent server.
	probe redis.UniversalClient
	// location leads the connections of all of them to a single server.
	location *location
	pacer    *pacer
	moves    moves
	// faults says which failures of a part of a pass are logged.
	faults *loglimit.Limiter
	// recent are messages stored here lately.
	recent memory
	// pageTime is maxPageTime; tests choose a shorter time. pageTurns holds for each shard the number of the producer
	// behind which due.lua begins with pages. So all producers get their turn, however few of them a pass reaches.
	pageTime  time.Duration
	pageTurns []atomic.Int64
	// claims counts claims for tokens and rotates the shard that comes first.
	claims atomic.Uint64
	// name is unique to this store and names its instance: INSTANCE/NONCE.
	name string
	// wakeSender is called when a move has made a successor of its message due; see WakeForSuccessors.
	wakeSender atomic.Pointer[func()]
	sweeper
	pulses pulses
	// breakers are the circuits of a Cluster's masters; nil on a single server.
	breakers *breakers
}

var (
	_ halfmsg.Intake       = (*Store)(nil)
	_ halfmsg.ConfirmStore = (*Store)(nil)
	_ halfmsg.SendStore    = (*Store)(nil)
	_ halfmsg.Inspector    = (*Store)(nil)
)

// New connects to Redis, loads the scripts and checks that existing data have the same number of shards. Errors while
// Redis is away are halfmsg's, and a retry may help; no other error goes away by itself.
func New(ctx context.Context, config Config) (*Store, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if config.Retention <= 0 {
		return nil, errors.New("redis: Retention is required")
	}
	where, err := address.ParseRedis(config.URL)
	if err != nil {
		return nil, fmt.Errorf("the redis URL %w", err)
	}
	var nonce [4]byte
	_, _ = rand.Read(nonce[:]) // crypto/rand never fails
	s := &Store{
		config: config, logger: config.Logger,
		name: config.Instance + "/" + hex.EncodeToString(nonce[:]), pacer: newPacer(),
		faults: loglimit.New(loglimit.Interval),
	}
	s.sweeper.cursors = map[string]*cursor{}
	s.location = newLocation(where, config)
	s.intake, s.loops = connect(where, config, s.location), connect(where, config, s.location)
	probing := where
	probing.PoolSize = 1
	s.probe = connect(probing, config, s.location)
	if err := s.prepare(ctx, where); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (c Config) complete() (Config, error) {
	if c.Ran == nil {
		c.Ran = func(string, int, time.Duration) {}
	}
	if c.Quota == nil {
		c.Quota = func(string) int { return 0 }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.LongestWait = max(c.LongestWait, parkTime)
	if c.Instance == "" {
		c.Instance, _ = os.Hostname()
	}
	if !legalPrefix.MatchString(c.Prefix) {
		return c, fmt.Errorf("redis prefix %q: letters, digits and ._:- only, 1 to 100 of them", c.Prefix)
	}
	if c.Shards < 0 || c.Shards > maxShards {
		return c, fmt.Errorf("%d shards: from 1 to %d are possible", c.Shards, maxShards)
	}
	return c, nil
}

func (s *Store) prepare(ctx context.Context, where address.Redis) error {
	var err error
	if s.layout, err = s.agreeOnLayout(ctx, where.Cluster); err != nil {
		return err
	}
	s.config.Archive = s.config.Archive.over(s.layout.shards)
	if s.scripts, err = loadScripts(ctx, s.intake, s.config); err != nil {
		return fmt.Errorf("loading scripts: %w", translate(err))
	}
	s.moves = newMoves(s.loops, s.scripts.moves, s.logger)
	s.keys = newKeys(s.config.Prefix, s.layout)
	s.pulses.last, s.pulses.pruneAt = make([]pulse, s.layout.shards), time.Now().Add(pruneAfter)
	s.pageTime, s.pageTurns = maxPageTime, make([]atomic.Int64, s.layout.shards)
	s.watchMasters()
	return nil
}

// agreeOnLayout writes the layout when no coordinator has yet, and compares. An existing layout is never overwritten,
// so a coordinator can start while Redis is full, and help to empty Redis.
func (s *Store) agreeOnLayout(ctx context.Context, cluster bool) (layout, error) {
	key := metaOf(s.config.Prefix)
	got, err := s.writtenLayout(ctx, layout{shards: s.config.shardsOf("", cluster)})
	if err != nil {
		return layout{}, fmt.Errorf("reading %s: %w", key, translate(err))
	}
	l := layout{shards: s.config.shardsOf(got[shardsField], cluster)}
	if wrong := misfitOf(got, l); wrong.name != "" {
		return layout{}, fmt.Errorf("redis.prefix %s %s: %s", s.config.Prefix, wrong.what, wrong.remedy)
	}
	s.installation = got[installationField]
	return l, nil
}

// Installation is the ID of the data: it tells them from those of another Redis or prefix.
func (s *Store) Installation() string { return s.installation }

// writtenLayout reads the layout of the data and their ID. A missing layout is replaced by l, a missing ID by the known
// one.
func (s *Store) writtenLayout(ctx context.Context, l layout) (map[string]string, error) {
	key := metaOf(s.config.Prefix)
	got, err := s.intake.HGetAll(ctx, key).Result()
	if err != nil || got[layoutField] != "" && got[shardsField] != "" && got[installationField] != "" {
		return got, err
	}
	pipe := s.intake.Pipeline()
	pipe.HSetNX(ctx, key, layoutField, layoutVersion)
	pipe.HSetNX(ctx, key, shardsField, l.shards)
	pipe.HSetNX(ctx, key, installationField, cmp.Or(s.installation, rand.Text()))
	written := pipe.HGetAll(ctx, key)
	_, err = pipe.Exec(ctx)
	return written.Val(), err
}

// shardsOf is the number of shards: the configured number, else the number written in Redis, else the default.
func (c Config) shardsOf(written string, cluster bool) int {
	if c.Shards > 0 {
		return c.Shards
	}
	if n, err := strconv.Atoi(written); err == nil && n >= 1 && n <= maxShards {
		return n
	}
	if cluster {
		return shardsOnCluster
	}
	return 1
}

// Close ends all connections. Calls under way fail.
func (s *Store) Close() error {
	s.breakers.close()
	return errors.Join(s.intake.Close(), s.loops.Close(), s.probe.Close())
}

// newToken makes the token of one claim.
func (s *Store) newToken() string {
	return s.name + "." + strconv.FormatUint(s.claims.Add(1), 36)
}

// ownerOf is the instance in a token.
func ownerOf(token string) string {
	if i := strings.LastIndexByte(token, '/'); i >= 0 {
		return token[:i]
	}
	return token
}
