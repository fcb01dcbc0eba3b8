module berth/scripts/bench.d/transport

go 1.26.0

require (
	berth v0.0.0
	github.com/hashicorp/yamux v0.1.2
	golang.org/x/crypto v0.59.0
)

require (
	al.essio.dev/pkg/shellescape v1.6.1 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	github.com/google/go-containerregistry v0.22.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/pelletier/go-toml/v2 v2.4.3 // indirect
	github.com/sylabs/sif/v2 v2.24.2 // indirect
	github.com/sylabs/singularity/v4 v4.1.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace berth => ../../..
