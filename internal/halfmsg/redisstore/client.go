package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The driver writes lines of its own to standard error when it cannot connect. Every such error comes back to whoever
// called, and is told there once and with its cause.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Timeouts of the driver. The context of a call ends earlier where it says so.
const (
	// dialTimeout is short: a server on the same network that does not answer in that time is away.
	dialTimeout = 2 * time.Second
	// replyTimeout leaves a server that forks or syncs its disk some time.
	replyTimeout = 5 * time.Second
	// poolSize is per pool and node. Calls come in batches, so a few connections carry everything.
	poolSize = 16
	// clusterReload is short, because the default of a minute keeps a client on a dead master for most of it.
	clusterReload = time.Second
)

// address is what a URL says about where Redis is.
type address struct {
	addrs    []string
	cluster  bool
	master   string // of Sentinel
	sentinel struct{ user, password string }
	options  *redis.Options
}

// parseURL reads the forms that Config.URL describes.
func parseURL(text string) (address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "redis" && scheme != "rediss" {
		return address{}, errors.New("it must begin with redis:// or rediss://")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	// Of a password with such a character the rest would be taken for a database or an option, and quoted.
	if strings.Contains(tail, "@") || strings.Contains(text, "#") {
		return address{}, errors.New("special characters in a password must be written as %XX: %2F for /, %3F for ?, " +
			"%23 for #, %40 for @")
	}
	userinfo := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		userinfo, authority = authority[:i+1], authority[i+1:]
	}
	path, query, _ := strings.Cut(tail, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return address{}, errors.New("its query cannot be read")
	}
	var a address
	a.addrs = strings.Split(authority, ",")
	a.master = values.Get("master")
	a.sentinel.user, a.sentinel.password = values.Get("sentinel_username"), values.Get("sentinel_password")
	a.cluster = values.Get("cluster") == "true" || a.master == "" && len(a.addrs) > 1
	for _, key := range []string{"master", "cluster", "sentinel_username", "sentinel_password"} {
		values.Del(key)
	}
	one := scheme + "://" + userinfo + a.addrs[0] + path
	if len(values) > 0 {
		one += "?" + values.Encode()
	}
	if a.options, err = redis.ParseURL(one); err != nil {
		return address{}, withoutURL(err)
	}
	return a.complete()
}

// withoutURL keeps a password that stands in the URL out of errors and logs.
func withoutURL(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return parse.Err
	}
	return err
}

// complete adds the default port and refuses what contradicts itself.
func (a address) complete() (address, error) {
	if a.cluster && a.master != "" {
		return address{}, errors.New("it names both a cluster and a Sentinel's master")
	}
	if a.cluster && a.options.DB != 0 {
		return address{}, errors.New("a cluster has database 0 only")
	}
	port := "6379"
	if a.master != "" {
		port = "26379"
	}
	for i, addr := range a.addrs {
		if addr == "" {
			return address{}, errors.New("one of its addresses is empty")
		}
		if !strings.Contains(addr, ":") {
			a.addrs[i] = addr + ":" + port
		}
	}
	return a, nil
}

// connect makes a client; nothing is dialled yet. Each client has a pool of its own.
func (a address) connect() redis.UniversalClient {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	size := cmp.Or(a.options.PoolSize, poolSize)
	switch {
	case a.cluster:
		// No redirects either. The driver would send a script again after any error, so the last error could say that nothing
		// happened when the first one had been run; and it would follow ASK to where a slot is moving, where a script finds
		// none of the messages that are still to come. After MOVED it learns the new place all the same.
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: a.addrs, Username: a.options.Username, Password: a.options.Password, TLSConfig: a.options.TLSConfig,
			Protocol: 2, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, DialTimeout: dialTimeout, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
			ContextTimeoutEnabled: true, PoolSize: size, PoolTimeout: dialTimeout, DisableIdentity: true,
			MaintNotificationsConfig: quiet, ClusterStateReloadInterval: clusterReload,
		})
	case a.master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: a.master, SentinelAddrs: a.addrs,
			SentinelUsername: a.sentinel.user, SentinelPassword: a.sentinel.password,
			Username: a.options.Username, Password: a.options.Password, DB: a.options.DB, TLSConfig: a.options.TLSConfig,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: dialTimeout, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
			ContextTimeoutEnabled: true, PoolSize: size, PoolTimeout: dialTimeout, DisableIdentity: true,
		})
	}
	o := *a.options
	o.Addr = a.addrs[0]
	o.Protocol, o.MaxRetries, o.DialerRetries, o.DialTimeout = 2, -1, 1, dialTimeout
	o.ReadTimeout, o.WriteTimeout = replyTimeout, replyTimeout
	o.ContextTimeoutEnabled, o.PoolSize, o.PoolTimeout, o.DisableIdentity = true, size, dialTimeout, true
	o.MaintNotificationsConfig = quiet
	return redis.NewClient(&o)
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
