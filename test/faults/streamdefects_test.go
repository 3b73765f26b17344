package faults

const (
	natsPublisher  = "broker/nats/"
	kafkaPublisher = "broker/kafka/"
)

// streamDefects are mistakes with brokers of other kinds, and with their consumers.
var streamDefects = []defect{
	{
		name: "unknown_stream_is_done", row: "F27_nats", want: Lost,
		edits: []edit{{
			natsPublisher + "publishcall.go", "c.conclude(s, publish.Refused.Because(why))",
			"c.conclude(s, publish.Result{Outcome: publish.Acked})",
		}},
	},
	{
		name: "unknown_topic_is_done", row: "F27_kafka", want: Lost,
		edits: []edit{{
			kafkaPublisher + "publishcall.go",
			"\tcase kafkaconn.TopicRefused, kafkaconn.BatchRefused:",
			"\tcase kafkaconn.TopicRefused:\n\t\treturn publish.Result{Outcome: publish.Acked}\n\tcase kafkaconn.BatchRefused:",
		}},
	},
	{
		name: "acknowledged_before_the_effect", row: "F30_nats", want: Effect, consumes: true, drain: patience,
		edits: []edit{{
			"broker/nats/natsconsumer/session.go", "\tbegun := time.Now()\n", "\ts.acknowledge(t, m)\n\tbegun := time.Now()\n",
		}},
	},
	{
		name: "committed_before_the_effect", row: "F30_kafka", want: Effect, consumes: true, drain: patience,
		edits: []edit{{
			"broker/kafka/kafkaconsumer/partition.go", "\t\t\t\terr = r.handler.Handle(r.work, m)\n",
			"\t\t\t\t_ = p.in.client.CommitRecords(r.work, record)\n\t\t\t\terr = r.handler.Handle(r.work, m)\n",
		}},
	},
	{
		name: "no_room_uses_an_attempt", row: "F31_nats", want: Parked,
		edits: []edit{{
			"broker/nats/natsconn/answers.go", `return Unavailable, fmt.Errorf("JetStream takes`,
			`return Refused, fmt.Errorf("JetStream takes`,
		}},
	},
	{
		name: "no_room_is_done", row: "F31_kafka", want: Lost,
		edits: []edit{{
			kafkaPublisher + "publishcall.go", "return publish.Unsent.Because(answer.Err)",
			"return publish.Result{Outcome: publish.Acked}",
		}},
	},
}
