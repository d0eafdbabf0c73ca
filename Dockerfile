# Two stages: the static binary is built, and is all there is in the image
# beside the certificates that https origins are verified with.
FROM golang:1.26-bookworm AS build
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X sluice/gateway.Version=${VERSION}" -o /sluice ./gateway/sluice

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /sluice /sluice

# A container is reached from outside; the admin listener stays on loopback,
# where the health check asks it. Engines give a container ten seconds to stop
# unless told otherwise, and what is open then loses its close frame.
ENV PASEO_RELAY_HOST=0.0.0.0 \
    HOST=0.0.0.0 \
    DRAIN_SECONDS=8
EXPOSE 4000 8080
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/sluice", "health"]
ENTRYPOINT ["/sluice"]
CMD ["serve"]
