#!/usr/bin/env bash
# Drives the sandbox with clients that eksbg did not write: the stock AWS CLI and
# kubectl. They get everything from the environment that the sandbox writes.
#
#   scripts/interop.sh            uses bin/eksbg; set EKSBG to use another binary
#
# Prints a line per check and how many passed; exits 1 when one failed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
eksbg=${EKSBG:-$root/bin/eksbg}
# Slow enough that a second call meets an update that the first one has begun.
speed=${SPEED:-60}
dir=$(mktemp -d)
sandbox=
watcher=
passed=0
failed=0

finish() {
  status=$?
  if [ -n "$watcher" ]; then kill "$watcher" 2>/dev/null || true; fi
  leave
  if [ "$status" -ne 0 ] && [ -s "$dir/sandbox.err" ]; then
    echo "what the sandbox said:" >&2
    tail -n 20 "$dir/sandbox.err" >&2
  fi
  rm -rf "$dir"
}
trap finish EXIT

# leave ends the sandbox that is served.
leave() {
  if [ -n "$sandbox" ]; then
    kill -INT "$sandbox" 2>/dev/null || true
    wait "$sandbox" 2>/dev/null || true
  fi
  sandbox=
}

# enter SCENARIO SPEED serves another one, in $dir/world, and takes its environment.
enter() {
  leave
  rm -rf "$dir/world" "$dir/sandbox.out"
  "$eksbg" sandbox --scenario "$1" --dir "$dir/world" --speed "$2" >"$dir/sandbox.out" 2>"$dir/sandbox.err" &
  sandbox=$!
  local end=$((SECONDS + 60))
  until grep -qsx ready "$dir/sandbox.out"; do
    kill -0 "$sandbox" 2>/dev/null || { tail -n 20 "$dir/sandbox.err" >&2; sandbox=; die "the sandbox did not start"; }
    [ "$SECONDS" -lt "$end" ] || die "the sandbox was not ready within a minute"
    sleep 0.1
  done
  # shellcheck source=/dev/null
  . "$dir/world/env"
}

die() { echo "interop: $*" >&2; exit 1; }

# need COMMAND PACKAGE installs Debian's package where the command is missing.
need() {
  command -v "$1" >/dev/null 2>&1 && return
  command -v apt-get >/dev/null 2>&1 || die "$1 is not on PATH; install it"
  [ "$(id -u)" = 0 ] || die "$1 is not on PATH; install it with: sudo apt-get install $2"
  echo "installing $2" >&2
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$2"; } >"$dir/apt.log" 2>&1 \
    || { tail -n 20 "$dir/apt.log" >&2; die "$2 could not be installed"; }
}

pass() { passed=$((passed + 1)); echo "ok    $1"; }
fail() { failed=$((failed + 1)); echo "FAIL  $1"; printf '      %s\n' "${@:2}"; }

# equal WHAT WANT GOT
equal() { if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "want: $2" "got:  $3"; fi; }

# like WHAT PATTERN GOT matches an extended regular expression anywhere in GOT.
like() { if grep -Eq -- "$2" <<<"$3"; then pass "$1"; else fail "$1" "want: $2" "got:  $3"; fi; }

# refused WHAT PATTERN COMMAND... wants the command to fail with such a message.
refused() {
  local what=$1 pattern=$2 out
  shift 2
  if out=$("$@" 2>&1); then fail "$what" "it was accepted: $out"; else like "$what" "$pattern" "$out"; fi
}

# eventually WANT COMMAND... runs the command until it prints WANT, for a minute at
# most, and prints what it printed last.
eventually() {
  local want=$1 got='' end=$((SECONDS + 60))
  shift
  while [ "$SECONDS" -lt "$end" ]; do
    got=$("$@" 2>&1) || true
    [ "$got" = "$want" ] && break
    sleep 0.2
  done
  echo "$got"
}

# cli SERVICE ARGS... is aws. Releases from before July 2023 (Debian 12 has one) do
# not read AWS_ENDPOINT_URL_*: they get the same value as an option.
cli() {
  local service=$1 endpoint
  endpoint="AWS_ENDPOINT_URL_$(tr a-z A-Z <<<"$service")"
  case $service in
    route53) endpoint=AWS_ENDPOINT_URL_ROUTE_53 ;;
    elbv2) endpoint=AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2 ;;
    service-quotas) endpoint=AWS_ENDPOINT_URL_SERVICE_QUOTAS ;;
  esac
  if [ "$old_cli" = yes ]; then set -- --endpoint-url "${!endpoint}" "$@"; fi
  aws --output text "$@"
}

kube() { kubectl --context green "$@"; }

need aws awscli
need kubectl kubernetes-client
[ -x "$eksbg" ] || die "$eksbg is not there; build it with: make build"

old_cli=no
version=$(aws --version 2>&1 | sed -E 's|^aws-cli/([0-9.]+).*|\1|')
case $version in
  1.*) first=1.29.0 ;;
  *) first=2.13.0 ;;
esac
if [ "$(printf '%s\n' "$first" "$version" | sort -V | head -n 1)" != "$first" ]; then old_cli=yes; fi
echo "aws $version, kubectl $(kubectl version --client 2>/dev/null | sed -nE 's/.*(v1\.[0-9.]+).*/\1/p' | head -n 1), $eksbg"

enter hot "$speed"

echo "-- sts, eks"
like "sts get-caller-identity" "^arn:aws:" "$(cli sts get-caller-identity --query Arn)"
equal "eks list-clusters" "shop-blue shop-green" "$(cli eks list-clusters --query clusters | xargs)"
equal "eks describe-cluster" "1.31 ACTIVE" "$(cli eks describe-cluster --name shop-green --query 'cluster.[version,status]' | xargs)"
refused "eks describe-cluster of none" "ResourceNotFoundException.*No cluster found for name: nobody" cli eks describe-cluster --name nobody
refused "eks update-cluster-version two minors" "InvalidParameterException" cli eks update-cluster-version --name shop-green --kubernetes-version 1.33
update=$(cli eks update-cluster-version --name shop-green --kubernetes-version 1.32 --query 'update.[id,status,type]')
like "eks update-cluster-version" "InProgress[[:space:]]+VersionUpdate" "$update"
update=$(cut -f 1 <<<"$update")
refused "eks update-cluster-version while one runs" "ResourceInUseException.*shop-green" cli eks update-cluster-version --name shop-green --kubernetes-version 1.32
equal "eks describe-update" "Successful" "$(eventually Successful cli eks describe-update --name shop-green --update-id "$update" --query update.status)"
if cli eks wait cluster-active --name shop-green; then pass "eks wait cluster-active"; else fail "eks wait cluster-active"; fi
equal "eks describe-cluster after it" "1.32 ACTIVE" "$(cli eks describe-cluster --name shop-green --query 'cluster.[version,status]' | xargs)"
equal "eks list-updates" "$update" "$(cli eks list-updates --name shop-green --query updateIds)"

echo "-- kubectl"
like "kubectl version is the control plane's" "Server Version: .*v1\.32\." "$(kube version)"
nodes=$(kube get nodes -o wide)
like "kubectl get nodes: Fargate, kubelets still 1.31" "^fargate-ip-10-21-[0-9-]+\.ap-northeast-1\.compute\.internal +Ready .* v1\.31\." "$nodes"
equal "kubectl get nodes: none at 1.32 yet" 0 "$(grep -c 'v1\.32\.' <<<"$nodes" || true)"
pods=$(kube get pods -A -o wide)
like "kubectl get pods -A -o wide" "^shop +storefront-[a-z0-9]+-[a-z0-9]+ +1/1 +Running .* fargate-ip-10-21-" "$pods"
like "kubectl get pods: a StatefulSet's" "^orders +orders-queue-0 +1/1 +Running" "$pods"

like "kubectl rollout restart" "deployment.apps/storefront restarted" "$(kube rollout restart deployment/storefront -n shop)"
like "kubectl rollout status" "successfully rolled out" "$(kube rollout status deployment/storefront -n shop --timeout=60s)"
like "kubectl rollout restart a StatefulSet" "statefulset.apps/orders-queue restarted" "$(kube rollout restart statefulset/orders-queue -n orders)"
like "kubectl rollout status a StatefulSet" "rolling update complete|roll out complete" "$(kube rollout status statefulset/orders-queue -n orders --timeout=60s)"
# kubelets PREDICATE... prints the minors of the kubelets under the pods of a selector.
kubelets() {
  local node
  for node in $(kube get pods -n "$1" -l "$2" -o 'jsonpath={.items[*].spec.nodeName}'); do
    kube get node "$node" -o 'jsonpath={.status.nodeInfo.kubeletVersion}{"\n"}'
  done | sed -E 's/^v(1\.[0-9]+).*/\1/' | sort -u | xargs
}
equal "the restarted pods are on new kubelets" 1.32 "$(eventually 1.32 kubelets shop app=storefront)"
equal "pods that were not restarted keep theirs" 1.31 "$(kubelets shop app=catalog)"

kube get pods -n shop -l app=catalog -w --no-headers >"$dir/watch.out" 2>&1 &
watcher=$!
equal "kubectl get -w lists first" 2 "$(eventually 2 grep -c Running "$dir/watch.out")"
like "kubectl scale" "deployment.apps/catalog scaled" "$(kube scale deployment/catalog -n shop --replicas=3)"
ready() { kube get deployment "$1" -n shop -o 'jsonpath={.status.readyReplicas}'; }
equal "kubectl scale brings a pod" 3 "$(eventually 3 ready catalog)"
started() { awk '$3 == "Running" {print $1}' "$dir/watch.out" | sort -u | wc -l | xargs; }
equal "kubectl get -w shows it come" 3 "$(eventually 3 started)"
kill "$watcher" 2>/dev/null || true
wait "$watcher" 2>/dev/null || true
watcher=

victim=$(kube get pods -n shop -l app=catalog -o 'jsonpath={.items[0].metadata.name}')
node=$(kube get pod "$victim" -n shop -o 'jsonpath={.spec.nodeName}')
like "kubectl delete pod" "pod \"$victim\".* deleted" "$(kube delete pod "$victim" -n shop)"
equal "a new pod takes its place" 3 "$(eventually 3 ready catalog)"
refused "the deleted pod is gone" "NotFound" kube get pod "$victim" -n shop
gone() { kube get node "$node" >/dev/null 2>&1 && echo there || echo gone; }
equal "its node is gone with it" gone "$(eventually gone gone)"

echo "-- ec2, service quotas"
subnets=$(cli eks describe-fargate-profile --cluster-name shop-green --fargate-profile-name apps --query fargateProfile.subnets)
vpc=$(cli eks describe-cluster --name shop-green --query cluster.resourcesVpcConfig.vpcId)
of_vpc() { cli ec2 describe-subnets --filters "Name=vpc-id,Values=$vpc" --query "$1"; }
equal "ec2 describe-subnets: the Fargate profile's" "$(xargs <<<"$subnets")" "$(of_vpc 'Subnets[].SubnetId' | xargs)"
# Two subnets of /20, less the five addresses of each that a VPC keeps.
taken() { echo $((2 * (4096 - 5) - $(of_vpc 'sum(Subnets[].AvailableIpAddressCount)' | sed 's/\..*//'))); }
pods_there() { kube get pods -A --no-headers | wc -l | xargs; }
equal "ec2 describe-subnets: each pod holds an address" "$(pods_there)" "$(eventually "$(pods_there)" taken)"
refused "ec2 describe-subnets of none" "InvalidSubnetID.NotFound.*subnet-0gone" cli ec2 describe-subnets --subnet-ids subnet-0gone
quota() { cli service-quotas "$1" --service-code fargate --quota-code "$2" --query Quota.Value; }
equal "service-quotas get-service-quota: vCPUs" 4000.0 "$(quota get-service-quota L-3032A538)"
refused "service-quotas get-service-quota of a value that the account has not" "NoSuchResourceException" quota get-service-quota L-6BAD92DD
equal "service-quotas get-aws-default-service-quota: launches" 100.0 "$(quota get-aws-default-service-quota L-6BAD92DD)"
equal "service-quotas list-service-quotas" L-3032A538 "$(cli service-quotas list-service-quotas --service-code fargate --query 'Quotas[].QuotaCode')"

echo "-- route53"
zone=$(cli route53 list-hosted-zones --query "HostedZones[?Name=='shop.example.com.'].Id")
records() {
  cli route53 list-resource-record-sets --hosted-zone-id "$zone" \
    --query "ResourceRecordSets[?Name=='api.shop.example.com.'].[SetIdentifier,Weight]" | sort | xargs
}
equal "route53 list-resource-record-sets" "blue 100 green 0" "$(records)"
set_of() { # ID WEIGHT VALUE
  printf '{"Name":"api.shop.example.com.","Type":"A","SetIdentifier":"%s","Weight":%s,"TTL":60,"ResourceRecords":[{"Value":"%s"}]}' "$@"
}
batch() { # OLD-BLUE OLD-GREEN NEW-BLUE NEW-GREEN
  printf '{"Changes":[{"Action":"DELETE","ResourceRecordSet":%s},{"Action":"DELETE","ResourceRecordSet":%s},{"Action":"CREATE","ResourceRecordSet":%s},{"Action":"CREATE","ResourceRecordSet":%s}]}' \
    "$(set_of blue "$1" 127.31.0.1)" "$(set_of green "$2" 127.31.0.2)" "$(set_of blue "$3" 127.31.0.1)" "$(set_of green "$4" 127.31.0.2)"
}
change() { cli route53 change-resource-record-sets --hosted-zone-id "$zone" --query 'ChangeInfo.[Id,Status]' --change-batch "$(batch "$@")"; }
out=$(change 100 0 50 50)
like "route53 change-resource-record-sets" "^/change/[A-Z0-9]+[[:space:]]+PENDING" "$out"
synced() { cli route53 get-change --id "$(cut -f 1 <<<"$out")" --query ChangeInfo.Status; }
equal "route53 get-change" INSYNC "$(eventually INSYNC synced)"
equal "route53 shows the new weights" "blue 50 green 50" "$(records)"
refused "route53 refuses a DELETE that does not match" "InvalidChangeBatch" change 100 0 0 100
equal "and changes nothing" "blue 50 green 50" "$(records)"

echo "-- elbv2"
lb=$(cli elbv2 describe-load-balancers --names shop --query 'LoadBalancers[0].LoadBalancerArn')
listener=$(cli elbv2 describe-listeners --load-balancer-arn "$lb" --query 'Listeners[0].ListenerArn')
group() { cli elbv2 describe-target-groups --names "$1" --query 'TargetGroups[0].TargetGroupArn'; }
blue=$(group shop-blue)
green=$(group shop-green)
equal "elbv2 describe-rules" "10 default" "$(cli elbv2 describe-rules --listener-arn "$listener" --query 'Rules[].[Priority]' | sort | xargs)"
health() { cli elbv2 describe-target-health --target-group-arn "$1" --query 'TargetHealthDescriptions[].[TargetHealth.State]' | sort -u | xargs; }
equal "elbv2 describe-target-health: in use" healthy "$(eventually healthy health "$blue")"
equal "elbv2 describe-target-health: on no listener" unused "$(health "$green")"
forward() { # WEIGHT-BLUE WEIGHT-GREEN
  printf '[{"Type":"forward","ForwardConfig":{"TargetGroups":[{"TargetGroupArn":"%s","Weight":%s},{"TargetGroupArn":"%s","Weight":%s}]}}]' "$blue" "$1" "$green" "$2"
}
weights='Actions[0].ForwardConfig.TargetGroups[].[Weight]'
equal "elbv2 modify-listener" "100 0" "$(cli elbv2 modify-listener --listener-arn "$listener" --default-actions "$(forward 100 0)" \
  --query "Listeners[0].Default$weights" | xargs)"
equal "elbv2 describe-target-health: attached at weight 0" healthy "$(eventually healthy health "$green")"
refused "elbv2 refuses a weight above 999" "Validation(Error|Exception)" cli elbv2 modify-listener --listener-arn "$listener" --default-actions "$(forward 1000 0)"
rule=$(cli elbv2 describe-rules --listener-arn "$listener" --query "Rules[?Priority=='10'].RuleArn")
equal "elbv2 modify-rule" "50 50" "$(cli elbv2 modify-rule --rule-arn "$rule" --actions "$(forward 50 50)" --query "Rules[0].$weights" | xargs)"
equal "elbv2 describe-rules after it" "50 50" "$(cli elbv2 describe-rules --rule-arns "$rule" --query "Rules[0].$weights" | xargs)"

echo "-- log"
like "requests.ndjson has the update" '"call":"eks:UpdateClusterVersion","object":"shop-green","changing":true,"accepted":true' "$(cat "$dir/world/requests.ndjson")"

echo "-- a cluster that is built: eks, kubectl"
enter "$root/internal/sandbox/testdata/cold.yaml" 20 # slow enough that a second call meets a profile that comes
green=cold-green
role=arn:aws:iam::111122223333:role
subnets=$(cli ec2 describe-subnets --filters "Name=tag:Name,Values=$green-*" --query 'Subnets[].SubnetId' | xargs | tr ' ' ,)
refused "kubectl has no such context yet" "context.*(does not exist|not found)" kube get nodes
refused "eks create-cluster in one zone" "InvalidParameterException.*two different AZs" cli eks create-cluster --name "$green" \
  --role-arn "$role/control-plane" --resources-vpc-config "subnetIds=${subnets%,*}"
build() {
  cli eks create-cluster --name "$green" --kubernetes-version "$1" --role-arn "$role/control-plane" \
    --resources-vpc-config "subnetIds=$subnets" --query 'cluster.[version,status]'
}
equal "eks create-cluster, two minors above the other" "1.33 CREATING" "$(build 1.33 | xargs)"
refused "eks create-cluster again" "ResourceInUseException.*Cluster already exists with name: $green" build 1.33
of_cluster() { cli eks describe-cluster --name "$green" --query "cluster.$1"; }
equal "eks describe-cluster: it becomes active" ACTIVE "$(eventually ACTIVE of_cluster status)"
like "it has an endpoint of its own" "^https://127\.0\.0\.1:" "$(of_cluster endpoint)"
like "it has an issuer of its own" "^https://oidc\.eks\." "$(of_cluster identity.oidc.issuer)"

profile() {
  cli eks create-fargate-profile --cluster-name "$green" --fargate-profile-name "$1" --pod-execution-role-arn "$role/pods" \
    --selectors "namespace=$2" --query fargateProfile.status
}
of_profile() { cli eks describe-fargate-profile --cluster-name "$green" --fargate-profile-name "$1" --query fargateProfile.status 2>/dev/null || echo gone; }
equal "eks create-fargate-profile" CREATING "$(profile system kube-system)"
refused "eks create-fargate-profile, two at once" "ResourceInUseException.*has Fargate profile system in status CREATING" profile apps shop
equal "eks describe-fargate-profile: it becomes active" ACTIVE "$(eventually ACTIVE of_profile system)"
profile apps shop >/dev/null
equal "and the next one" ACTIVE "$(eventually ACTIVE of_profile apps)"

like "kubectl knows its version" "Server Version: .*v1\.33\." "$(kube version)"
if [ "$old_cli" = no ]; then
  aws eks update-kubeconfig --name "$green" --kubeconfig "$dir/built.kubeconfig" >/dev/null
  like "eks update-kubeconfig, eks get-token" "^kube-system " "$(KUBECONFIG=$dir/built.kubeconfig kubectl get namespaces)"
fi
equal "CoreDNS waits for pods that are Fargate's" "" "$(kube get deployment coredns -n kube-system -o 'jsonpath={.status.readyReplicas}')"
kube rollout restart deployment/coredns -n kube-system >/dev/null
like "kubectl rollout restart of CoreDNS" "successfully rolled out" "$(kube rollout status deployment/coredns -n kube-system --timeout=60s)"
like "kubectl apply of the manifests" "deployment.apps/storefront created" "$(kube apply -f "$dir/world/green.json")"
like "kubectl rollout status" "successfully rolled out" "$(kube rollout status deployment/storefront -n shop --timeout=60s)"
target=$(group cold-green)
equal "elbv2 describe-target-health: its pods are registered" "healthy" "$(eventually healthy health "$target")"
equal "eks create-addon" CREATING "$(cli eks create-addon --cluster-name "$green" --addon-name coredns --query addon.status)"
of_addon() { cli eks describe-addon --cluster-name "$green" --addon-name coredns --query addon.status; }
equal "eks describe-addon: it becomes active" ACTIVE "$(eventually ACTIVE of_addon)"

refused "eks delete-cluster with its profiles" "ResourceInUseException.*Fargate Profiles" cli eks delete-cluster --name "$green"
for name in apps system; do
  equal "eks delete-fargate-profile $name" DELETING "$(cli eks delete-fargate-profile --cluster-name "$green" --fargate-profile-name "$name" --query fargateProfile.status)"
  equal "and it goes" gone "$(eventually gone of_profile "$name")"
done
equal "eks delete-cluster" DELETING "$(cli eks delete-cluster --name "$green" --query cluster.status)"
clusters() { cli eks list-clusters --query clusters | xargs; }
equal "eks list-clusters: one is left" cold-blue "$(eventually cold-blue clusters)"
equal "what the other one left stays" "$(tr , ' ' <<<"$subnets")" "$(cli ec2 describe-subnets --filters "Name=tag:Name,Values=$green-*" --query 'Subnets[].SubnetId' | xargs)"

echo "-- node groups and the way back: eks, kubectl"
enter "$root/internal/sandbox/testdata/in-place.yaml" 120
kube() { kubectl --context blue "$@"; }
of_group() { cli eks describe-nodegroup --cluster-name in-place --nodegroup-name "$1" --query "nodegroup.$2" | xargs; }
equal "eks list-nodegroups" "own workers" "$(cli eks list-nodegroups --cluster-name in-place --query nodegroups | xargs)"
equal "eks describe-nodegroup" "1.31 ACTIVE" "$(of_group workers '[version,status]')"
refused "eks update-cluster-version with groups behind" "InvalidParameterException.*Nodegroups own,workers must be updated" \
  cli eks update-cluster-version --name in-place --kubernetes-version 1.33
refused "eks update-nodegroup-version of a custom AMI" "InvalidParameterException.*kubernetesVersion when using custom AMIs" \
  cli eks update-nodegroup-version --cluster-name in-place --nodegroup-name own --kubernetes-version 1.32 --launch-template name=in-place-own,version=2
update=$(cli eks update-nodegroup-version --cluster-name in-place --nodegroup-name workers --force --query update.id)
of_update() { cli eks describe-update --name in-place --update-id "$update" --nodegroup-name workers --query update.status; }
equal "eks describe-update --nodegroup-name" Successful "$(eventually Successful of_update)"
kubelets_of() { kube get nodes -l "eks.amazonaws.com/nodegroup=$1" -o 'jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion}{"\n"}{end}' | sed -E 's/^v(1\.[0-9]+).*/\1/' | xargs; }
equal "kubectl get nodes: the group has new kubelets" "1.32 1.32" "$(kubelets_of workers)"
kube scale deployment --all -n web --replicas=0 >/dev/null
cli eks update-nodegroup-config --cluster-name in-place --nodegroup-name workers --scaling-config minSize=0,desiredSize=0 >/dev/null
equal "eks update-nodegroup-config: the group is at zero" "" "$(eventually '' kubelets_of workers)"
refused "eks update-cluster-version back, over new kubelets" "InvalidStateException.*Kubelet version skew is ERROR" \
  cli eks update-cluster-version --name in-place --kubernetes-version 1.31
kube scale deployment coredns -n kube-system --replicas=0 >/dev/null
back() { cli eks update-cluster-version --name in-place --kubernetes-version 1.31 --query update.type; }
equal "eks update-cluster-version back, without" VersionRollback "$(eventually VersionRollback back)"
version_of() { cli eks describe-cluster --name in-place --query cluster.version; }
equal "eks describe-cluster: the version is the old one" 1.31 "$(eventually 1.31 version_of)"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
