package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg/redisstore"
	"github.com/msghandler/msghandler/internal/rabbitmq"
)

const (
	areaSettings = "configuration"
	areaRedis    = "redis"
	areaBroker   = "rabbitmq"
)

// examineSettings looks for what is allowed and rarely meant. What is wrong keeps the configuration from being read.
func examineSettings(_ context.Context, e Examination) (found []Finding) {
	warn := func(what, why, remedy string) {
		found = append(found, Finding{areaSettings, Warning, what, why, remedy})
	}
	if len(e.Settings.Callbacks.Allow) == 0 {
		warn("callbacks.allow is empty", "no callback target is allowed, so no half message is accepted",
			"set it to where your producers serve, such as *.orders.svc:9000")
	}
	if e.Settings.Submit.Trust {
		warn("submit.trust is true", "a Submit is taken as the verdict, so a producer that submits before it commits "+
			"publishes what never happened", "trust single producers instead: producers.NAME.trust")
	}
	if e.Settings.Redis.AllowUnsafe {
		warn("redis.allow_unsafe is true", "the coordinator starts on a Redis that throws messages away",
			"mend what is found about Redis, and set it back")
	}
	if len(found) == 0 {
		found = append(found, Finding{Area: areaSettings, What: "nothing that endangers messages"})
	}
	return found
}

func examineRedis(ctx context.Context, e Examination) []Finding {
	if _, is := config.Embedded(e.Settings.Redis.URL); is {
		return []Finding{embedded(areaRedis)}
	}
	seen, err := redisstore.Examine(ctx, redisstore.Config{
		URL: e.Settings.Redis.URL, Prefix: e.Settings.Redis.Prefix, Shards: e.Settings.Redis.Shards,
		MinReplicas: e.Settings.Redis.MinReplicas,
	})
	if err != nil {
		return []Finding{{
			areaRedis, Trouble, err.Error(), "producers get UNAVAILABLE, and nothing is delivered",
			"start Redis, or set redis.url to where it is",
		}}
	}
	if len(seen) == 0 {
		return []Finding{{Area: areaRedis, What: "reachable, and set up as the promises need it"}}
	}
	found := make([]Finding, len(seen))
	for i, s := range seen {
		found[i] = Finding{areaRedis, Warning, s.What, s.Why, s.Remedy}
		if s.Severity == redisstore.Refuse {
			found[i].Severity = Trouble
		}
	}
	return found
}

func examineBroker(ctx context.Context, e Examination) []Finding {
	if _, is := config.Embedded(e.Settings.AMQP.URLs[0]); is {
		return []Finding{embedded(areaBroker)}
	}
	var exchanges []string
	if name := e.Settings.Send.DeadLetterExchange; name != "" {
		exchanges = append(exchanges, name)
	}
	health, err := rabbitmq.Examine(ctx, rabbitmq.Config{URLs: e.Settings.AMQP.URLs, Logger: slog.New(slog.DiscardHandler)},
		exchanges...)
	if err != nil {
		return []Finding{{
			areaBroker, Trouble, "cannot be reached: " + err.Error(), "messages are taken and wait in Redis",
			"start RabbitMQ, or set amqp.url to where it is, with the right user and vhost",
		}}
	}
	var found []Finding
	if health.Trouble != nil {
		found = append(found, Finding{
			areaBroker, Trouble, fmt.Sprintf("%s at %s: %v", health.Server, health.Host, health.Trouble),
			"messages are taken and wait in Redis", "look at its alarms: rabbitmq-diagnostics alarms",
		})
	}
	for _, name := range slices.Sorted(maps.Keys(health.Exchanges)) {
		found = append(found, Finding{
			areaBroker, Warning, fmt.Sprintf("send.dead_letter_exchange %s: %v", name, health.Exchanges[name]),
			"dead messages are kept and shown, but not copied", "declare the exchange, or give the user permission to it",
		})
	}
	if len(found) == 0 {
		found = append(found, Finding{Area: areaBroker, What: health.Server + " at " + health.Host + " takes messages"})
	}
	return found
}

func embedded(area string) Finding {
	return Finding{area, Warning, "is embedded", "everything in it is gone when the coordinator ends", "use a real server"}
}
