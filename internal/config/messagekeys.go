package config

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func (c *Confirm) keys() []Key {
	return []Key{
		{
			Name: "confirm.schedule", Default: "@every 1s", value: text(&c.Schedule, checkSchedule),
			Meaning: "Schedule of the confirm loop, which looks for silent messages: a cron line (UTC) or @every DURATION.",
		},
		{
			Name: "confirm.after", Default: "6s", value: duration(&c.After, time.Millisecond, day),
			Meaning: "Silence after which a message's producer is asked. A request may set its own.",
		},
		{
			Name: "confirm.backoff", Default: "5s,10s,30s,1m,2m,5m", value: durations(&c.Backoff, day),
			Meaning: "Delays before a producer that answered UNKNOWN is asked again; the last delay repeats. Jitter shortens " +
				"a delay by up to half.",
		},
		{
			Name: "confirm.attempts", Default: "15", value: whole(&c.Attempts, 1, 10000),
			Meaning: "UNKNOWN answers before the final question. A message with no verdict after the final question becomes " +
				"ABANDONED.",
		},
		{
			Name: "confirm.give_up_after", Default: "0s", value: duration(&c.GiveUpAfter, 0, 365*day),
			Meaning: "Time limit for the verdict, counted from SendHalfMessage. After it comes the final question at once, " +
				"and a message whose producer answers UNKNOWN, or cannot be reached, becomes ABANDONED. 0: no limit, only " +
				"confirm.attempts counts. Must be longer than confirm.after.",
		},
		{
			Name: "confirm.timeout", Default: "3s", value: duration(&c.Timeout, 10*time.Millisecond, 5*time.Minute),
			Meaning: "Timeout of one call to a producer.",
		},
		{
			Name: "confirm.batch", Default: "200", value: whole(&c.Batch, 1, 500),
			Meaning: "Messages in one Confirm call, at most.",
		},
		{
			Name: "confirm.lease", Default: "30s", value: duration(&c.Lease, time.Second, time.Hour),
			Meaning: "Lease on a message that is being confirmed. When a coordinator dies, another one continues after the " +
				"lease. Must be longer than twice confirm.timeout plus one second.",
		},
	}
}

func (s *Send) keys() []Key {
	return []Key{
		{
			Name: "send.schedule", Default: "@every 1s", value: text(&s.Schedule, checkSchedule),
			Meaning: "Schedule of the send loop, which looks for due messages: a cron line (UTC) or @every DURATION.",
		},
		{
			Name: "send.backoff", Default: "5s,30s,2m", value: durations(&s.Backoff, day),
			Meaning: "Delays before a message that the broker refused is published again. The refusal after the last delay " +
				"makes the message DEAD.",
		},
		{
			Name: "send.batch", Default: "500", value: whole(&s.Batch, 1, 5000),
			Meaning: "Messages that are published and settled together, at most.",
		},
		{
			Name: "send.lease", Default: "30s", value: duration(&s.Lease, time.Second, time.Hour),
			Meaning: "Lease on a message that is being published. At least send.confirm_timeout and five seconds; twice " +
				"send.confirm_timeout and five seconds where a dead_letter_exchange is set, whose answer must fit in too.",
		},
		{
			Name: "send.confirm_timeout", Default: "10s", value: duration(&s.ConfirmTimeout, 100*time.Millisecond,
				10*time.Minute),
			Meaning: "Time the broker may take to acknowledge. After it the outcome is unknown.",
		},
		{
			Name: "send.dead_letter_exchange", value: text(&s.DeadLetterExchange, checkExchange),
			Meaning: "Exchange to which DEAD messages are copied, with reason, attempts and origin as headers. Empty: none.",
		},
	}
}

func (s *Submit) keys() []Key {
	return []Key{{
		Name: "submit.trust", Default: "false", value: flag(&s.Trust),
		Meaning: "Take a Submit itself as the verdict COMMITTED, without asking the producer. producers.<name>.trust " +
			"overrides this for one producer.",
	}}
}

func (d *DeleteBusiness) keys() []Key {
	return []Key{{
		Name: "delete_business.when", Default: BeforePublish, value: oneOf(&d.When, BeforePublish, AfterAck),
		Meaning: "When markers are deleted. after_ack is for a Redis that may lose its last second: the marker then " +
			"outlives the publish, and the message is ACKNOWLEDGED until its marker is deleted.",
	}}
}

func (d *Done) keys() []Key {
	return []Key{{
		Name: "done.retention", Default: "10m", value: duration(&d.Retention, time.Second, 30*day),
		Meaning: "How long a receipt is kept: a repeated call still learns that a message is DONE or ROLLED_BACK.",
	}}
}

func (a *Archive) keys() []Key {
	return []Key{
		{
			Name: "archive.retention", Default: "0", value: duration(&a.Retention, 0, 365*day),
			Meaning: "How long finished messages are kept with their content, to be found and replayed. 0: no archive. The " +
				"archive takes memory of Redis: see docs/run/message.md.",
		},
		{
			Name: "archive.max_messages", Default: "100000", value: whole(&a.MaxMessages, 1, 100_000_000),
			Meaning: "About how many messages the archive holds, in all shards together. The oldest go first. Nothing is " +
				"archived while Redis uses more than nine tenths of its maxmemory.",
		},
		{
			Name: "archive.max_body", Default: "64KiB", value: size(&a.MaxBody, 0, halfmsg.MaxBody),
			Meaning: "The largest body that the archive keeps, packed where the record is packed. Of larger messages all but " +
				"the body is kept, and they cannot be replayed.",
		},
	}
}

func (e *Events) keys() []Key {
	return []Key{
		{
			Name: "events.webhook", Secret: true, value: text(&e.Webhook, checkWebhook),
			Meaning: "URL to which events are posted as JSON, http:// or https://: ABANDONED and DEAD messages, circuit " +
				"breakers, trouble with Redis, backlogs, refused producers, killed coordinators. None: events are only " +
				"logged and counted.",
		},
		{
			Name: "events.webhook_token", Secret: true, value: text(&e.WebhookToken, checkToken),
			Meaning: "Bearer token for the webhook (Authorization: Bearer).",
		},
		{
			Name: "events.queues", value: list(&e.Queues, 0, checkQueue),
			Meaning: "Queues of the broker to watch. Their messages are counted on a separate connection.",
		},
		{
			Name: "events.queue_messages", Default: "1000", value: whole(&e.QueueMessages, 1, 1_000_000_000),
			Meaning: "Alert threshold: messages in a watched queue.",
		},
		{
			Name: "events.dead_letter_queues", value: list(&e.DeadLetterQueues, 0, checkQueue),
			Meaning: "Dead-letter queues of the broker to watch. A single message raises the alert.",
		},
	}
}

func (s *Shutdown) keys() []Key {
	return []Key{{
		Name: "shutdown.grace", Default: "20s", value: duration(&s.Grace, time.Millisecond, time.Hour),
		Meaning: "Time a stop may take. Work under way is finished or handed back within it.",
	}}
}

func (l *Log) keys() []Key {
	return []Key{
		{
			Name: "log.level", Default: "info", value: oneOf(&l.Level, "debug", "info", "warn", "error"),
			Meaning: "Minimum level of the lines that are logged. debug: also a line for each publish attempt.",
		},
		{
			Name: "log.format", Default: "text", value: oneOf(&l.Format, "text", "json"),
			Meaning: "Format of the log lines on standard error.",
		},
		{
			Name: "log.language", Default: "en", value: oneOf(&l.Language, "en", "zh"),
			Meaning: "Language of the fixed log text for messages that could not be published: en, English, or zh, Chinese. " +
				"All other lines are in English.",
		},
	}
}
