package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	left  context.Context
	leave context.CancelFunc
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

// Relocate examines whether the store may go on at another URL. It may where that server has everything that this store
// has written, takes writes, and the present server takes none: two servers that take writes lose messages. A Cluster
// and Sentinels say by themselves where their masters are. User and password are no move: see Config.Present.
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
		return Relocation{}, errors.New("names another Cluster, other Sentinels, or other options: " +
			"restart the coordinators one by one; without a restart they follow from one server to another")
	}
	config := s.config
	config.Present = func() address.Redis { return to }
	client, is := connect(to, config, newLocation(to, config)).(*redis.Client)
	if !is {
		return Relocation{}, fmt.Errorf("no single server at %s", to.Hosts[0])
	}
	defer func() { _ = client.Close() }()
	found, err := s.judgeServers(ctx, client, to.Hosts[0])
	if err != nil {
		return Relocation{}, fmt.Errorf("%s %w", to.Hosts[0], err)
	}
	return Relocation{
		Findings: found, From: from.Hosts[0], To: to.Hosts[0], take: func() { s.location.move(to) },
	}, nil
}

// judgeServers says why the store may not go on at the new server. The present one first: from then on nothing is
// written there.
func (s *Store) judgeServers(ctx context.Context, client *redis.Client, addr string) ([]Finding, error) {
	if present, is := s.probe.(*redis.Client); is {
		info, err := serverInfo(ctx, present, "replication")
		if err == nil && info["role"] == "master" {
			return nil, errors.New("is not taken, because the present Redis still takes writes: have it FAILOVER to the " +
				"new one first")
		}
	}
	info, err := serverInfo(ctx, client, "replication")
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be used: %w", translate(err))
	case info["role"] != "master":
		return nil, errors.New("is no master: promote it first")
	}
	if err := s.judgeData(ctx, client); err != nil {
		return nil, err
	}
	found, err := checkServer(ctx, client, addr)
	return found, translate(err)
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
