# shellcheck shell=sh
if [ -r @secrets@/network ]; then cp @secrets@/network @build@/network; fi
if [ -r @secrets@/certificates ]; then
    cp @secrets@/certificates @build@/certificates.crt
fi
