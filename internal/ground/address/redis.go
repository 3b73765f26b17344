package address

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Redis is the address of Redis, with the options of its connections.
type Redis struct {
	// Hosts are HOST:PORT, of the Sentinels where Master is set.
	Hosts          []string
	User, Password string
	// Database is 0 in a Cluster.
	Database int
	Cluster  bool
	// Master is the name by which Sentinels know the master.
	Master                         string
	SentinelUser, SentinelPassword string
	// TLS asks for TLS, Unverified for not looking at the servers' certificates.
	TLS, Unverified bool
	// ClientName is the name of each connection.
	ClientName string
	// The limits of each pool of connections, 0 where nothing is said.
	PoolSize           int
	IdleTime, LifeTime time.Duration
}

const redisForm = "redis://[user:password@]host:port/db, rediss://..., several host:port with commas for a cluster, " +
	"or those of Sentinels with ?master=NAME"

// The options of Redis.
const (
	optionCluster          = "cluster"
	optionClientName       = "client_name"
	optionIdleTime         = "conn_max_idle_time"
	optionLifeTime         = "conn_max_lifetime"
	optionDatabase         = "db"
	optionMaster           = "master"
	optionPoolSize         = "pool_size"
	optionSentinelPassword = "sentinel_password"
	optionSentinelUser     = "sentinel_username"
	optionUnverified       = "skip_verify"
)

var redisOptions = []string{
	optionCluster, optionClientName, optionIdleTime, optionLifeTime, optionDatabase, optionMaster, optionPoolSize,
	optionSentinelPassword, optionSentinelUser, optionUnverified,
}

// mostPool bounds a pool, whose places are allocated before its connections: far more than a coordinator can use.
const mostPool = 10000

// ParseRedis reads the address of Redis:
//   - redis://HOST:PORT/DB: one server;
//   - redis://HOST:PORT,HOST:PORT: a Cluster, of which some nodes are named; one is enough with ?cluster=true;
//   - redis://HOST:PORT,HOST:PORT/DB?master=NAME: the Sentinels that know the master NAME; sentinel_username and
//     sentinel_password are for the Sentinels themselves.
//
// rediss:// instead of redis:// asks for TLS, USER:PASSWORD@ may stand before the hosts, and ports may be left out.
func ParseRedis(text string) (Redis, error) {
	u, hosts, err := parse(text, redisForm, "redis", "rediss")
	if err != nil {
		return Redis{}, err
	}
	written, err := readOptions(u, redisOptions)
	if err != nil {
		return Redis{}, err
	}
	o := options{values: written}
	r := Redis{
		User: u.User.Username(), TLS: u.Scheme == "rediss", Unverified: o.boolean(optionUnverified),
		Master: o.text(optionMaster), SentinelUser: o.text(optionSentinelUser),
		SentinelPassword: o.text(optionSentinelPassword),
		Cluster:          o.boolean(optionCluster), ClientName: o.text(optionClientName),
		PoolSize: o.whole(optionPoolSize, mostPool),
		IdleTime: o.duration(optionIdleTime), LifeTime: o.duration(optionLifeTime),
		Database: o.whole(optionDatabase, math.MaxInt32),
	}
	r.Password, _ = u.User.Password()
	if o.err != nil {
		return Redis{}, o.err
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		n, err := strconv.ParseUint(path, 10, 31)
		if err != nil || written.Has(optionDatabase) {
			return Redis{}, errors.New("has a database that is no number from 0 on; write host:port/0, and no ?db= beside it")
		}
		r.Database = int(n)
	}
	if err := r.readHosts(hosts); err != nil {
		return Redis{}, err
	}
	if err := r.check(); err != nil {
		return Redis{}, err
	}
	return r, nil
}

// readHosts reads the hosts. Several hosts without a Sentinel master are a Cluster.
func (r *Redis) readHosts(hosts []string) error {
	port := "6379"
	if r.Master != "" {
		port = "26379"
	}
	for _, text := range hosts {
		host, err := readHost(text, port)
		if err != nil {
			return err
		}
		r.Hosts = append(r.Hosts, host)
	}
	r.Cluster = r.Cluster || r.Master == "" && len(r.Hosts) > 1
	return nil
}

// check refuses contradicting options.
func (r *Redis) check() error {
	switch {
	case r.Cluster && r.Master != "":
		return errors.New("asks for a Cluster and for a master of Sentinels; leave out ?cluster= or ?master=")
	case r.Cluster && r.Database != 0:
		return errors.New("asks a Cluster for a database other than 0, and it has only that one; leave the database out")
	case r.Master == "" && r.SentinelUser+r.SentinelPassword != "":
		return errors.New("has a login for Sentinels and names no master that they know; add ?master=NAME")
	case r.Unverified && !r.TLS:
		return errors.New("has the option skip_verify, which is for rediss:// only")
	}
	return nil
}

// options reads the values of options and keeps the first error.
type options struct {
	values url.Values
	err    error
}

func (o *options) text(name string) string { return o.values.Get(name) }

func (o *options) boolean(name string) bool {
	switch o.text(name) {
	case "true", "1":
		return true
	case "false", "0", "":
	default:
		o.wrong(name, "write true or false")
	}
	return false
}

// whole reads a number, 0 where there is none.
func (o *options) whole(name string, most int) int {
	text := o.text(name)
	n, err := strconv.Atoi(text)
	if text != "" && (err != nil || n < 0 || n > most) {
		o.wrong(name, fmt.Sprintf("write a number from 0 to %d", most))
	}
	return n
}

// duration reads a duration, or a number of seconds as in the driver's own addresses; 0 for no value.
func (o *options) duration(name string) time.Duration {
	text := o.text(name)
	if text == "" {
		return 0
	}
	if seconds, err := strconv.Atoi(text); err == nil {
		text = strconv.Itoa(seconds) + "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		o.wrong(name, "write a duration such as 5m")
	}
	return d
}

func (o *options) wrong(name, remedy string) {
	if o.err == nil {
		o.err = fmt.Errorf("has a value of the option %s that cannot be; %s", name, remedy)
	}
}
