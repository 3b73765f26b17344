package defects

const (
	natsPublisher  = "broker/nats/"
	kafkaPublisher = "broker/kafka/"
)

// ofStreams are mistakes with brokers of other kinds, and of their consumers.
var ofStreams = []Defect{
	{
		Name: "unknown_stream_is_done",
		Edits: []Edit{{
			natsPublisher + "publishcall.go", "c.conclude(s, publish.Refused.Because(why))",
			"c.conclude(s, publish.Result{Outcome: publish.Acked})",
		}},
	},
	{
		Name: "unknown_topic_is_done",
		Edits: []Edit{{
			kafkaPublisher + "publishcall.go",
			"\tcase kafkaconn.TopicRefused, kafkaconn.BatchRefused:",
			"\tcase kafkaconn.TopicRefused:\n\t\treturn publish.Result{Outcome: publish.Acked}\n\tcase kafkaconn.BatchRefused:",
		}},
	},
	{
		Name: "acknowledged_before_the_effect",
		Edits: []Edit{{
			"broker/nats/natsconsumer/session.go", "\tbegun := time.Now()\n", "\ts.acknowledge(t, m)\n\tbegun := time.Now()\n",
		}},
	},
	{
		Name: "committed_before_the_effect",
		Edits: []Edit{{
			"broker/kafka/kafkaconsumer/partition.go", "\t\t\t\terr = r.handler.Handle(r.work, m)\n",
			"\t\t\t\t_ = p.in.client.CommitRecords(r.work, record)\n\t\t\t\terr = r.handler.Handle(r.work, m)\n",
		}},
	},
	{
		Name: "no_room_uses_an_attempt",
		Edits: []Edit{{
			"broker/nats/natsconn/answers.go", `return Unavailable, fmt.Errorf("JetStream takes`,
			`return Refused, fmt.Errorf("JetStream takes`,
		}},
	},
	{
		Name: "no_room_is_done",
		Edits: []Edit{{
			kafkaPublisher + "publishcall.go", "return publish.Unsent.Because(answer.Err)",
			"return publish.Result{Outcome: publish.Acked}",
		}},
	},
}
