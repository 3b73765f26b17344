package doctor

import "context"

// Verify examines how one producer keeps the contract of ProducerService: what Examine asks it, and more that leaves a
// trace there, as a final question about an id that cannot exist does. committed are ids that are known to have committed
// and whose markers have not been deleted. Each part says at least that it is well.
func Verify(ctx context.Context, e Examination, name, address string, committed ...string) []Finding {
	r := report{area: "producer " + name}
	client, err := e.callbacks()
	if err != nil {
		r.trouble("producer-forbidden", err.Error(), "the coordinator does not start", "correct the target, or allow it in callbacks.allow")
		return r.all
	}
	defer client.Close()
	found := e.examineProducer(ctx, client, name, address)
	if Worst(found) == Trouble {
		return found
	}
	to, _ := r.find(client, name, address)
	api, release, err := client.Open(to)
	if err != nil {
		r.unreachable(err)
		return r.all
	}
	defer release()
	i := interview{api: api, name: name, to: to, timeout: e.Settings.Confirm.Timeout}
	for _, part := range []func(context.Context, *report) string{
		i.batch, i.odd, i.known(committed), i.final, i.deletions,
	} {
		r := report{area: "producer " + name}
		if well := part(ctx, &r); well != "" || len(r.all) > 0 {
			found = append(found, r.orWell(well)...)
		}
	}
	return found
}
