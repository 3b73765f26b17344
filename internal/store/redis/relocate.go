package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/ground/address"
)

// site is where a single server is. Its connections end when the store has left the place.
type site struct {
	address.Redis
	// latest is the address with the login that was read last for this place; nil before.
	latest atomic.Pointer[address.Redis]
	left   context.Context
	leave  context.CancelFunc
}

// location leads the connections of all clients to one place, and to another one after a relocation.
type location struct {
	now    atomic.Pointer[site]
	config Config
}

func newLocation(at address.Redis, config Config) *location {
	l := &location{config: config}
	l.move(at)
	return l
}

// move leads later connections to another place. Commands that are under way end at the place before.
func (l *location) move(to address.Redis) {
	next := &site{Redis: to}
	next.left, next.leave = context.WithCancel(context.Background()) //nolint:gosec // the next move calls it
	if before := l.now.Swap(next); before != nil {
		time.AfterFunc(replyTimeout, before.leave)
	}
}

// dial connects to the place of now. The driver knows the address of the start.
func (l *location) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	at := l.now.Load()
	dial := dialerOf(at.Redis, l.config)
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	conn, err := dial(ctx, network, at.Hosts[0])
	if _, checked := conn.(syscall.Conn); err != nil || !checked { // a network in memory has nothing to look at
		return conn, err
	}
	placed := &siteConn{Conn: conn, at: at, location: l}
	placed.forget = context.AfterFunc(at.left, func() { _ = conn.Close() })
	return placed, nil
}

// login is the address of now where it names this place. The file of redis.url may name the next place already, whose
// user and password are of no use here: then it is the address before.
func (l *location) login() address.Redis {
	at := l.now.Load()
	if l.config.Present != nil {
		if present := l.config.Present(); slices.Equal(present.Hosts, at.Hosts) {
			at.latest.Store(&present)
		}
	}
	if latest := at.latest.Load(); latest != nil {
		return *latest
	}
	return at.Redis
}

// nameOf is the address of a master.
func (l *location) nameOf(master *redis.Client) string {
	if at := l.now.Load(); isSingle(at.Redis) {
		return at.Hosts[0]
	}
	return master.Options().Addr
}

// siteConn is a connection to a place. The driver looks at a connection before each use, and so leaves the place.
type siteConn struct {
	net.Conn
	at       *site
	location *location
	forget   func() bool
}

var errLeft = errors.New("the store has left this server")

// SyscallConn implements syscall.Conn.
func (c *siteConn) SyscallConn() (syscall.RawConn, error) {
	if c.location.now.Load() != c.at {
		return nil, errLeft
	}
	inner, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", c.Conn)
	}
	return inner.SyscallConn()
}

// Close implements net.Conn.
func (c *siteConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// Relocation is a move of the data to another server that may be made. The zero value is none.
type Relocation struct {
	// Findings are about the settings of the new server.
	Findings []Finding
	// From and To are the addresses; empty where the servers stay the same.
	From, To string
	take     func()
}

// Take makes the move.
func (r Relocation) Take() {
	if r.take != nil {
		r.take()
	}
}

// ErrNeedsRestart says that a URL changes more than the place of a single server.
var ErrNeedsRestart = errors.New("names another Cluster, other Sentinels, or other options: restart the coordinators")

// Relocate examines whether the store may go on at another URL. It may where that server has everything that this store
// has written, takes writes, and the present server takes none: two servers that take writes lose messages. A Cluster
// and Sentinels say by themselves where their masters are: a change of their URL, or of options, is ErrNeedsRestart.
// User and password are no move: see Config.Present.
func (s *Store) Relocate(ctx context.Context, url string) (Relocation, error) {
	to, err := address.ParseRedis(url)
	if err != nil {
		return Relocation{}, err
	}
	from := s.location.now.Load().Redis
	if withoutLogin(from) == withoutLogin(to) {
		return Relocation{}, nil
	}
	if withoutPlace(from) != withoutPlace(to) || !isSingle(from) {
		return Relocation{}, ErrNeedsRestart
	}
	login := s.location.login()
	from.User, from.Password = login.User, login.Password
	found, err := s.judgeServers(ctx, s.clientOf(from), s.clientOf(to), to.Hosts[0])
	if err != nil {
		return Relocation{}, fmt.Errorf("%s %w", to.Hosts[0], err)
	}
	return Relocation{
		Findings: found, From: from.Hosts[0], To: to.Hosts[0], take: func() { s.location.move(to) },
	}, nil
}

// clientOf makes a client for a look at a single server. A connection of its own waits for no command of the store.
func (s *Store) clientOf(at address.Redis) *redis.Client {
	config := s.config
	config.Present, at.PoolSize = nil, 1
	place := newLocation(at, config)
	return newClient(at, place.dial, place.login).(*redis.Client) //nolint:forcetypeassert // of a single server
}

// judgeServers says why the store may not go on at the new server, and closes both clients. The present server comes
// first: from then on nothing is written there.
func (s *Store) judgeServers(ctx context.Context, present, next *redis.Client, addr string) ([]Finding, error) {
	defer func() { _ = errors.Join(present.Close(), next.Close()) }() // only reads went through the clients
	before, err := roleOf(ctx, present)
	if err != nil && !isAway(err) {
		return nil, fmt.Errorf("is not taken, because the present Redis does not say whether it takes writes: stop the "+
			"present Redis, or let it answer: %w", translate(err))
	}
	now, err := roleOf(ctx, next)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be used: %w", translate(err))
	case before.master && !before.is(now):
		return nil, errors.New("is not taken, because the present Redis still takes writes: have it FAILOVER to the " +
			"new one first")
	case !now.master:
		return nil, errors.New("is no master: promote it first")
	}
	if err := s.judgeData(ctx, next); err != nil {
		return nil, err
	}
	found, err := checkServer(ctx, next, addr)
	return found, translate(err)
}

// role is what a server says about itself. The ID is of its process, empty where the server hides it.
type role struct {
	id     string
	master bool
}

// is says whether both are one server, under two addresses.
func (r role) is(other role) bool { return r.id != "" && r.id == other.id }

func roleOf(ctx context.Context, server *redis.Client) (role, error) {
	info, err := serverInfo(ctx, server, "server", "replication")
	if err == nil && info["role"] == "" {
		err = errNoRole
	}
	return role{id: info["run_id"], master: info["role"] == "master"}, err
}

var errNoRole = errors.New("INFO does not tell its role; allow the user INFO")

// isAway says whether an error shows that no server listens. A server that accepts a connection and does not answer may
// only be slow, and takes writes later.
func isAway(err error) bool {
	var fromRedis redis.Error
	var op *net.OpError
	var late net.Error
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return true
	case errors.As(err, &fromRedis), errors.Is(err, errNoRole), errors.As(err, &late) && late.Timeout():
		return false
	}
	return true
}

// judgeData compares the data of the new server with what this store has seen last.
func (s *Store) judgeData(ctx context.Context, client *redis.Client) error {
	id, err := client.HGet(ctx, metaOf(s.config.Prefix), installationField).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return fmt.Errorf("cannot be read: %w", translate(err))
	case id != s.installation:
		return errors.New("has the data of another installation, or none: make it a replica of the present Redis first")
	}
	for shard, prefix := range s.keys.shards {
		got, err := client.HMGet(ctx, prefix+pulseName, "generation", s.name).Result()
		if err != nil {
			return fmt.Errorf("cannot be read: %w", translate(err))
		}
		if s.pulses.of(shard).aheadOf(got) {
			return fmt.Errorf("lacks what this coordinator has written last (shard %d): it was no replica in sync; a restart "+
				"of the coordinators takes it, and what it lacks is lost", shard)
		}
	}
	return nil
}

// aheadOf says whether a server with this generation and this count of the same store has lost something since p.
func (p pulse) aheadOf(got []any) bool {
	generation, _ := got[0].(string)
	text, _ := got[1].(string)
	count, _ := strconv.ParseInt(text, 10, 64) // 0 where there is none
	return p.generation != "" && (p.generation != generation || p.count > count)
}

// isSingle says whether it is the address of one server, and not of a Cluster or of Sentinels.
func isSingle(at address.Redis) bool { return !at.Cluster && at.Master == "" }

// withoutLogin is an address without what is read for each connection, to be compared.
func withoutLogin(at address.Redis) string {
	at.User, at.Password, at.SentinelUser, at.SentinelPassword = "", "", "", ""
	return fmt.Sprint(at)
}

// withoutPlace is what a relocation cannot change.
func withoutPlace(at address.Redis) string {
	at.Hosts, at.TLS, at.Unverified = nil, false, false
	return withoutLogin(at)
}
