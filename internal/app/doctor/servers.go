package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/ground/versions"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const (
	areaRedis  = "redis"
	areaBroker = "rabbitmq"
)

func examineRedis(ctx context.Context, e Examination) []Finding {
	r := report{area: areaRedis}
	seen, err := redisstore.Examine(ctx, redisstore.Config{
		URL: e.Settings.Redis.URL, Prefix: e.Settings.Redis.Prefix, Shards: e.Settings.Redis.Shards,
		MinReplicas: e.Settings.Redis.MinReplicas,
	})
	if err != nil {
		r.trouble("redis-away", "at "+redisHosts(e.Settings.Redis.URL)+": "+err.Error(),
			"producers get UNAVAILABLE, and nothing is delivered", "start Redis, or set redis.url to where it is")
		return r.all
	}
	for _, s := range seen {
		tell := r.warn
		switch s.Severity {
		case redisstore.Refuse:
			tell = r.trouble
		case redisstore.Note:
			tell = r.note
		default:
		}
		tell(s.Name, s.What, s.Why, s.Remedy)
	}
	return r.orOK("reachable, and the settings that it reveals keep the promises")
}

// redisHosts says where Redis is, without users and passwords.
func redisHosts(url string) string {
	where, _ := address.ParseRedis(url) // checked by config
	return strings.Join(where.Hosts, ",")
}

const brokerMatters = "messages are taken and wait in Redis"

func examineBroker(ctx context.Context, e Examination) []Finding {
	r := report{area: areaBroker}
	deadLetters := e.Settings.Send.DeadLetterExchange
	return r.rabbitMQ(ctx, strings.Join(e.Settings.AMQP.URLs, ","), deadLetters, "amqp.url", "send.dead_letter_exchange")
}

// examineBrokers examines the brokers beside the default one, one after the other.
func examineBrokers(ctx context.Context, e Examination) (all []Finding) {
	for _, name := range e.Settings.BrokerNames() {
		b := e.Settings.Brokers[name]
		key, r := "brokers."+name, report{area: "broker " + name}
		if brokers.System(b.URL) == areaBroker {
			all = append(all, r.rabbitMQ(ctx, b.URL, b.DeadLetterExchange, key+".url", key+".dead_letter_exchange")...)
			continue
		}
		all = append(all, r.anyBroker(ctx, b.URL, key+".url")...)
	}
	return all
}

// anyBroker opens a publisher and waits until the broker takes messages.
func (r *report) anyBroker(ctx context.Context, url, key string) []Finding {
	publisher, err := brokers.Open(publish.Config{
		URL: url, ConfirmTimeout: reachTime, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.trouble("broker-url", key+": "+err.Error(), brokerMatters, "correct "+key)
		return r.all
	}
	defer func() { _ = publisher.Close(ctx) }() // nothing was published
	reach, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if err := publisher.Await(reach); err != nil {
		r.trouble("broker-away", "takes no messages: "+err.Error(), brokerMatters, "start the broker, or set "+key+
			" to where it is, with a user who may publish")
	}
	return r.orOK(brokers.System(url) + " takes messages")
}

// reachTime is how long a broker may take to be reached.
const reachTime = 5 * time.Second

// rabbitMQ examines a RabbitMQ and its dead-letter exchange, if it has one. The keys are those of both.
func (r *report) rabbitMQ(ctx context.Context, url, deadLetters, urlKey, deadKey string) []Finding {
	var exchanges []string
	if deadLetters != "" {
		exchanges = append(exchanges, deadLetters)
	}
	health, err := rabbitmq.Examine(ctx, rabbitmq.Config{URL: url, Logger: slog.New(slog.DiscardHandler)}, exchanges...)
	switch {
	case errors.Is(err, rabbitmq.ErrAccessRefused):
		r.trouble("rabbitmq-login", err.Error(), brokerMatters, "set user, password and vhost in "+urlKey+
			": rabbitmqctl list_users, list_vhosts, list_permissions -p VHOST")
		return r.all
	case err != nil:
		r.trouble("rabbitmq-away", "cannot be reached: "+err.Error(), brokerMatters,
			"start RabbitMQ, or set "+urlKey+" to where it is")
		return r.all
	}
	r.broker(health)
	r.brokerVersion(health)
	for _, name := range slices.Sorted(maps.Keys(health.Exchanges)) {
		r.warn("dead-letter-exchange", fmt.Sprintf("%s %s: %v", deadKey, name, health.Exchanges[name]),
			"dead messages are kept and shown, but not copied", "declare the exchange, or give the user permission to it")
	}
	return r.orOK(health.Server + " at " + health.Host + " takes messages")
}

// broker reports why a reachable broker accepts no messages.
func (r *report) broker(health rabbitmq.Health) {
	what := fmt.Sprintf("%s at %s: %v", health.Server, health.Host, health.Trouble)
	switch {
	case health.Trouble == nil:
	case errors.Is(health.Trouble, rabbitmq.ErrNotPermitted):
		r.warn("rabbitmq-permission", what, "messages to it end DEAD; those to exchanges that the user may write to do not",
			"rabbitmqctl set_permissions: the user must be allowed to write to every exchange that producers name")
	case errors.Is(health.Trouble, publish.ErrBlocked):
		r.trouble("rabbitmq-alarm", what, brokerMatters,
			"look at its alarms: rabbitmq-diagnostics alarms; give it memory or disk")
	default:
		r.trouble("rabbitmq-refuses", what, brokerMatters, "look into RabbitMQ's log")
	}
}

// brokerVersion reports an unsupported version.
func (r *report) brokerVersion(health rabbitmq.Health) {
	what := health.Server + " at " + health.Host
	switch health.Age {
	case rabbitmq.TooOld:
		r.warn("rabbitmq-old", fmt.Sprintf("%s is older than %v", what, versions.RabbitMQ.Oldest),
			"msghandler is not tested with it", fmt.Sprintf("upgrade to RabbitMQ %v or later", versions.RabbitMQ.Oldest))
	case rabbitmq.Untested:
		r.note("rabbitmq-new", fmt.Sprintf("%s is newer than %v", what, versions.RabbitMQ.Newest),
			"msghandler is not tested with it", "try it with queues of the same kind before producers depend on it")
	default:
	}
}
