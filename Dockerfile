# One image with the coordinator, the load generator, a shop and its consumers: static binaries, no shell, no root.
FROM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY . .
ARG VERSION=unknown COMMIT=
# The mounted cache outlives the layer, so that only changed modules and packages are fetched and compiled.
RUN --mount=type=cache,target=/go GOCACHE=/go/build-cache CGO_ENABLED=0 go build -trimpath \
      -ldflags "-s -w -X github.com/msghandler/msghandler/internal/ground/build.version=${VERSION} \
        -X github.com/msghandler/msghandler/internal/ground/build.commit=${COMMIT}" \
      -o /out/ ./cmd/msghandler ./cmd/msghandler-bench ./cmd/producer-demo ./cmd/consumer-demo && \
    mkdir -m 700 /data

FROM scratch
# For rediss:// and amqps://.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
# The demos keep their databases here; a named volume takes its owner over.
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
EXPOSE 9090 9091
ENTRYPOINT ["/msghandler"]
CMD ["serve"]
