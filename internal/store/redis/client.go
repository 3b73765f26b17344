package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/msghandler/msghandler/internal/ground/address"
)

// The driver writes its own lines to standard error when a connection fails. The caller gets every such error anyway,
// with its cause, and logs the error once.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Timeouts of the driver. The context of a call may end earlier.
const (
	// dialTimeout is short: a server on the same network answers faster or is away.
	dialTimeout = 2 * time.Second
	// replyTimeout leaves a server that forks or syncs its disk some time.
	replyTimeout = 5 * time.Second
	// poolSize is per pool and node. Calls come in batches, so a few connections carry everything.
	poolSize = 16
	// clusterReload is short, because the default of a minute keeps a client on a dead master for most of it.
	clusterReload = time.Second
)

// connect makes a client; nothing is dialled yet. Each client has a pool of its own.
func connect(to address.Redis) redis.UniversalClient {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	size := cmp.Or(to.PoolSize, poolSize)
	switch {
	case to.Cluster:
		// No redirects either. The driver would send a script again after any error, so the last error could say that nothing
		// happened although the first run took effect. The driver would also follow ASK to the new place of a moving slot,
		// where a script misses the messages that have not moved yet. After MOVED the driver learns the new place anyway.
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: to.Hosts, Username: to.User, Password: to.Password, TLSConfig: tlsOf(to), ClientName: to.ClientName,
			Protocol: 2, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1,
			DialTimeout: dialTimeout, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout, ContextTimeoutEnabled: true,
			PoolSize: size, PoolTimeout: dialTimeout, ConnMaxIdleTime: to.IdleTime, ConnMaxLifetime: to.LifeTime,
			DisableIdentity: true, MaintNotificationsConfig: quiet, ClusterStateReloadInterval: clusterReload,
		})
	case to.Master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: to.Master, SentinelAddrs: to.Hosts,
			SentinelUsername: to.SentinelUser, SentinelPassword: to.SentinelPassword,
			Username: to.User, Password: to.Password, DB: to.Database, TLSConfig: tlsOf(to), ClientName: to.ClientName,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: dialTimeout,
			ReadTimeout: replyTimeout, WriteTimeout: replyTimeout, ContextTimeoutEnabled: true,
			PoolSize: size, PoolTimeout: dialTimeout, ConnMaxIdleTime: to.IdleTime, ConnMaxLifetime: to.LifeTime,
			DisableIdentity: true,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: to.Hosts[0], Username: to.User, Password: to.Password, DB: to.Database,
		TLSConfig: tlsOf(to), ClientName: to.ClientName,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: dialTimeout,
		ReadTimeout: replyTimeout, WriteTimeout: replyTimeout, ContextTimeoutEnabled: true,
		PoolSize: size, PoolTimeout: dialTimeout, ConnMaxIdleTime: to.IdleTime, ConnMaxLifetime: to.LifeTime,
		DisableIdentity: true, MaintNotificationsConfig: quiet,
	})
}

// tlsOf is the TLS configuration, nil without TLS. Each of several servers must have a certificate for the name of the
// first server, because a Cluster or Sentinels often call the others by bare addresses.
func tlsOf(to address.Redis) *tls.Config {
	if !to.TLS {
		return nil
	}
	name, _, _ := net.SplitHostPort(to.Hosts[0]) // Hosts are joined host and port
	return &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: to.Unverified}
}

// eachMaster calls f for every master, one after the other or concurrently.
func eachMaster(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("no masters known of a %T", client)
}
